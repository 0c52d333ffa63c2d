"""What the Hub and huggingface_hub refuse, each in one line of ours.

Lives here: huggingface_hub's exceptions turned into errors of qlock. Does not live here: waiting for a busy server
(``patience``).

Addresses are never shown: a redirected one carries a signature that opens the file to everybody. A server's own words
are shown without tokens, escaped and cut. No exception of the library is kept as a cause, since its text has both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.hub.account import Account
from qlock.world.hub.patience import BusyError
from qlock.world.interface import RepositoryKind

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Asked(Base, frozen=True, kw_only=True):
    """What a request was about, for its message."""

    repository: str
    revision: str
    kind: RepositoryKind
    path: str

    @property
    def name(self) -> str:
        """The repository in words."""
        what = "data set" if self.kind == "dataset" else "repository"
        return f"{what} `{for_message(self.repository)}`"


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit id, which never comes to mean another commit."""
    return _COMMIT.fullmatch(revision) is not None


def offline_error(asked: Asked) -> AbsentError:
    """No request may be made."""
    place = f"`{for_message(asked.path)}` of {asked.name}" if asked.path else asked.name
    return AbsentError(
        f"{place} is not in the Hub's cache, and no network may be used",
        hint="run it once without --offline and HF_HUB_OFFLINE",
    )


def refusal(error: Exception, asked: Asked, account: Account) -> QlockError | BusyError:
    """The error that stands for ``error``, which a request for ``asked`` raised.

    Raises:
        Exception: ``error`` itself, where it is none of huggingface_hub's: a bug.
    """
    from huggingface_hub import errors

    match error:
        case errors.OfflineModeIsEnabled():
            return offline_error(asked)
        case errors.GatedRepoError():
            return AbsentError(
                f"{asked.name} is gated and this account has no access",
                hint=f"accept the terms at {account.endpoint}/{_page(asked)} and log in with `hf auth login`",
            )
        case errors.RepositoryNotFoundError():
            return AbsentError(
                f"there is no {asked.name} on the Hub, or it is private",
                hint="check the name, or log in with `hf auth login`",
            )
        case errors.RevisionNotFoundError():
            return _no_revision(asked)
        case errors.EntryNotFoundError():
            return AbsentError(f"{asked.name} has no file `{for_message(asked.path)}` at `{asked.revision}`")
        case errors.DisabledRepoError():
            return AbsentError(f"{asked.name} has been disabled by the Hub")
        case errors.HFValidationError():
            return InputError(
                f"`{for_message(asked.repository)}` is no name of a repository, expected `OWNER/NAME`"
            )
        case errors.HfHubHTTPError():
            return _by_status(error, asked, account)
        case _ if isinstance(error, transport_error()):
            return BusyError(f"cannot reach it ({type(error).__name__})")
        case RuntimeError() if "closed" in str(error):
            # The library closes its one session, for all threads, when a single connection fails.
            return BusyError("the connection was closed")
        case ValueError() | KeyError() | TypeError() | AttributeError():
            return no_hub(asked)
        case _:
            raise error


def transport_error() -> type[Exception]:
    """What huggingface_hub's HTTP library raises when a connection fails.

    Which library that is (httpx, httpx2) depends on huggingface_hub's version; its own error is built on it.
    """
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__mro__[1]
    return base


def no_hub(asked: Asked) -> AbsentError:
    """What answered does not speak as the Hub does."""
    return AbsentError(
        f"the server's answer about {asked.name} is not one of the Hub's", hint="check HF_ENDPOINT"
    )


def renamed(asked: Asked, new_name: str) -> AbsentError:
    """The repository goes by another name now."""
    return AbsentError(
        f"{asked.name} has been renamed to `{for_message(new_name)}`", hint="write the new name in the spec"
    )


def _no_revision(asked: Asked) -> AbsentError:
    if is_commit(asked.revision):
        return AbsentError(
            f"commit `{asked.revision}` of {asked.name} has vanished upstream",
            hint="a file that is here and as locked can still be run; else let the pin move with "
            "`qlock resolve --upgrade NAME`",
        )
    return AbsentError(f"{asked.name} has no revision `{for_message(asked.revision)}`")


def _by_status(error: HfHubHTTPError, asked: Asked, account: Account) -> AbsentError:
    status = error.response.status_code
    said = account.redacted(error.response.headers.get("X-Error-Message", ""))
    if status == 401:
        return AbsentError(
            "the Hub does not know this token", hint="log in anew with `hf auth login`, or unset HF_TOKEN"
        )
    tail = f": {said}" if said else ""
    return AbsentError(f"the Hub refuses {asked.name} ({status}){tail}")


def _page(asked: Asked) -> str:
    return f"datasets/{asked.repository}" if asked.kind == "dataset" else asked.repository
