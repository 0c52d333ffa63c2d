"""huggingface_hub's HTTP session made fit for qlock, and what its answers mean.

Lives here: limits of time, the refusal to wait inside the library, silence, and the reading of single answers. Does not
live here: which requests are made (``world.hub``).
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from qlock.core.digest import is_digest
from qlock.world.hub.partial import place_in
from qlock.world.hub.patience import BUSY, busy
from qlock.world.hub.refusals import Asked, no_hub
from qlock.world.interface import HubFile

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

TIMEOUT_S = 30.0
"""Without a single byte."""

_LOGGERS = ("huggingface_hub", "httpx", "httpx2", "httpcore", "httpcore2")
_ONE_AT_A_TIME = threading.Lock()
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def furnish() -> None:
    """Make huggingface_hub's session one that has time limits, leaves all waiting to us, and is silent.

    The library waits for a busy server as long as that server says, and gives some requests no time limit at all.
    """
    from huggingface_hub import constants, get_session, set_client_factory

    # Its lines hold whole addresses, and a redirected one opens a file to everybody who has it.
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # It would fetch a list of programs from the Hub first, to say in each request which one is running.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    # Setting the factory closes the session, which another thread may be using already.
    with _ONE_AT_A_TIME:
        session = get_session()
        if _limit_time in session.event_hooks["request"]:
            return
        make = type(session)
        hooks: dict[str, list[Callable[..., Any]]] = {
            "request": [*session.event_hooks["request"], _limit_time],
            "response": [*session.event_hooks["response"], _refuse_busy],
        }
        set_client_factory(lambda: make(event_hooks=hooks, follow_redirects=True, timeout=TIMEOUT_S))


def file_of(entry: RepoFile, asked: Asked) -> HubFile:
    """One file as the Hub describes it.

    Raises:
        AbsentError: The server says something that no Hub says.
    """
    size_bytes = entry.size if entry.lfs is None else entry.lfs.size
    sha256 = UNSET if entry.lfs is None else f"sha256:{entry.lfs.sha256}"
    if type(size_bytes) is not int or size_bytes < 0 or _OID.fullmatch(str(entry.blob_id)) is None:
        raise no_hub(asked)
    if sha256 is not UNSET and not is_digest(sha256):
        raise no_hub(asked)
    return HubFile(path=entry.path, size_bytes=size_bytes, oid=entry.blob_id, sha256=sha256)


def place_of(status: int, headers: Mapping[str, str], asked: Asked, *, start: int) -> tuple[int, int]:
    """Where the bytes of an answer begin, and the size of the whole file.

    Args:
        status: 206 for the range that was asked for, 200 for the whole file.
        headers: Of the answer.
        asked: For the message.
        start: Where the range that was asked for begins.

    Raises:
        AbsentError: It is neither.
    """
    place = place_in(status, headers, start=start)
    if place is None:
        raise no_hub(asked)
    return place


def _limit_time(request: Any) -> None:
    """Give a request of the session a limit where it has none."""
    times = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {
        what: times.get(what) or TIMEOUT_S for what in ("connect", "read", "write", "pool")
    }


def _refuse_busy(response: Any) -> None:
    """Raise before huggingface_hub begins to wait by itself."""
    if response.status_code in BUSY:
        raise busy(response.status_code, response.headers)
