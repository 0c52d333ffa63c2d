"""The Hugging Face Hub: what a repository holds, single ranges of a file, and whole files in the Hub's own cache.

Lives here: the requests, all through huggingface_hub, which no other file imports. Beside it, what plain addresses share
with the Hub: waiting (``patience``), downloads (``partial``), and they themselves (``remote``). Does not live here:
choosing a file (``core.quants``), what its bytes mean (``core.gguf``), and when to ask at all (``flows``).

Requests per call: ``commit_of`` 1; ``listing`` 1 for the commit, then 1 for each 1,000 files, or for each 100 of
``paths``; ``read_range`` 1 and a redirect; ``fetch`` the same for each 16 GiB; ``changed_since`` 2; ``cached`` none.
At most 8 are under way at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

import qlock
from qlock.core.escape import for_message
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.hub import blobs
from qlock.world.hub.account import Account, account_of
from qlock.world.hub.blobs import Shelf
from qlock.world.hub.partial import Answer, is_here, read_span
from qlock.world.hub.patience import BusyError, Patience
from qlock.world.hub.refusals import Asked, is_commit, no_hub, offline_error, refusal, renamed
from qlock.world.hub.session import TIMEOUT_S, file_of, furnish, place_of
from qlock.world.interface import Clock, HubChange, HubFile, HubListing, Missing, RepositoryKind, Snapshot

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

CONNECTIONS = 8
MOST_FILES = 100_000
"""Of one repository."""
_PATHS_AT_ONCE = 100

_T = TypeVar("_T")


class RealHub:
    """A ``Hub`` over the network.

    Args:
        find_account: Says where and who; asked when first needed, since most verbs never ask the Hub.
        clock: For waiting.
        announce: Told about each wait for a busy server, in one line.
    """

    def __init__(
        self, find_account: Callable[[], Account], *, clock: Clock, announce: Callable[[str], None]
    ) -> None:
        self._find_account = find_account
        self._clock = clock
        self._announce = announce
        self._patience = Patience(
            clock, announce, name="the Hub", remedy="a login with `hf auth login` raises the limit"
        )
        self._connections = threading.BoundedSemaphore(CONNECTIONS)

    @functools.cached_property
    def _account(self) -> Account:
        return self._find_account()

    def offline(self) -> RealHub:
        """The same, except that it makes no request."""
        return RealHub(
            lambda: msgspec.structs.replace(self._account, is_offline=True),
            clock=self._clock,
            announce=self._announce,
        )

    def commit_of(self, repository: str, revision: str, *, kind: RepositoryKind = "model") -> str:
        """The commit that a branch, tag or commit names now.

        Raises:
            AbsentError: The repository, the revision or the network is not there, or the repository was renamed.
            InputError: The name is none of a repository.
        """
        asked = Asked(repository=repository, revision=revision, kind=kind, path="")
        found = self._asked(
            asked,
            lambda: self._api().repo_info(repository, revision=revision, repo_type=kind, timeout=TIMEOUT_S),
        )
        if found.id != repository:
            raise renamed(asked, str(found.id))
        if found.sha is None or not is_commit(found.sha):
            raise no_hub(asked)
        return found.sha

    def listing(
        self, repository: str, revision: str, *, kind: RepositoryKind = "model", paths: Sequence[str] = ()
    ) -> HubListing:
        """Every file at a revision, or those of ``paths`` that are there; nothing is read of any.

        Raises:
            AbsentError: As ``commit_of``.
            InputError: It holds more than 100,000 files.
        """
        commit = revision if is_commit(revision) else self.commit_of(repository, revision, kind=kind)
        snapshot = Snapshot(repository=repository, commit=commit, kind=kind)
        found: dict[str, HubFile] = {}
        if paths:
            for start in range(0, len(paths), _PATHS_AT_ONCE):
                found |= self._files(snapshot, tuple(paths[start : start + _PATHS_AT_ONCE]))
        else:
            found = self._all_files(snapshot)
        return HubListing(snapshot=snapshot, files=tuple(found[path] for path in sorted(found)))

    def read_range(self, snapshot: Snapshot, path: str, *, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer only where the file ends.

        Raises:
            AbsentError: The file, the access to it or the network is not there.
        """
        return read_span(
            lambda span, take: self._stream(snapshot, path, span, take), start=start, length=length
        )

    def fetch(
        self, snapshot: Snapshot, file: HubFile, *, progress: Callable[[int], None] | None = None
    ) -> Path:
        """Where the file lies in the Hub's cache, downloaded first where it does not.

        A file that is there in the right size is not read again; whoever pins it digests it anyway.

        Raises:
            AbsentError: The file, the access to it, the network or the space for it is not there.
            InputError: What came has another size or other bytes than the Hub names; it is thrown away.
        """
        shelf = Shelf(Path(self._account.cache), snapshot, file)
        if is_here(shelf.pointer, file.size_bytes):
            return shelf.pointer
        if not is_here(shelf.blob, file.size_bytes):
            self._ready(_asked_of(snapshot, file.path))
            shelf.bring(
                lambda span, take: self._stream(snapshot, file.path, span, take),
                progress or (lambda _: None),
            )
        return shelf.link()

    def cached(self, snapshot: Snapshot, path: str) -> Path | None:
        """Where the file lies in the Hub's cache; ``None`` when it does not. Makes no request."""
        found = blobs.pointer(Path(self._account.cache), snapshot, path)
        return found if found.is_file() else None

    def changed_since(self, snapshot: Snapshot, path: str, *, revision: str) -> HubChange | Missing:
        """Which upstream commit gave ``revision`` another file than the snapshot has.

        Raises:
            AbsentError: The repository, the revision or the network is not there.
        """
        asked = Asked(repository=snapshot.repository, revision=revision, kind=snapshot.kind, path=path)
        now = self._paths_info(asked, (path,), expand=True)
        if path not in now:
            return Missing(why=f"`{for_message(path)}` is no longer in `{for_message(revision)}`")
        commit = now[path].last_commit
        if commit is None or not is_commit(commit.oid):
            return Missing(why="the Hub does not say which commit changed it")
        file = file_of(now[path], asked)
        try:
            before = self._files(snapshot, (path,)).get(path)
        except AbsentError:
            # The commit has vanished, or the net since: what changed the file last is known all the same.
            before = None
        if before == file:
            return Missing(why=f"`{for_message(revision)}` still has the same file")
        return HubChange(commit=commit.oid, title=commit.title, date=f"{commit.date:%Y-%m-%d}", file=file)

    def _all_files(self, snapshot: Snapshot) -> dict[str, HubFile]:
        asked = _asked_of(snapshot, "")

        def read() -> dict[str, HubFile]:
            from huggingface_hub.hf_api import RepoFile

            entries = self._api().list_repo_tree(
                snapshot.repository, recursive=True, revision=snapshot.commit, repo_type=snapshot.kind
            )
            found: dict[str, HubFile] = {}
            for entry in entries:
                if isinstance(entry, RepoFile):
                    found[entry.path] = file_of(entry, asked)
                if len(found) > MOST_FILES:
                    raise InputError(
                        f"{asked.name} has more than {MOST_FILES} files", hint="name single files"
                    )
            return found

        return self._asked(asked, read)

    def _files(self, snapshot: Snapshot, paths: tuple[str, ...]) -> dict[str, HubFile]:
        asked = _asked_of(snapshot, "")
        found = self._paths_info(asked, paths, expand=False)
        return {path: file_of(entry, asked) for path, entry in found.items()}

    def _paths_info(self, asked: Asked, paths: tuple[str, ...], *, expand: bool) -> dict[str, RepoFile]:
        """huggingface_hub's ``RepoFile`` of each path that is a file there."""

        def read() -> dict[str, RepoFile]:
            from huggingface_hub.hf_api import RepoFile

            entries = self._api().get_paths_info(
                asked.repository, list(paths), expand=expand, revision=asked.revision, repo_type=asked.kind
            )
            return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

        return self._asked(asked, read)

    def _stream(
        self,
        snapshot: Snapshot,
        path: str,
        span: Callable[[], tuple[int, int]],
        take: Callable[[Answer], None],
    ) -> None:
        """Ask for the bytes of ``span`` and hand them to ``take``; again, where the server is busy or cuts them off."""
        asked = _asked_of(snapshot, path)

        def read(counted: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
            from huggingface_hub import get_session, hf_raise_for_status

            start, end = span()
            url, headers = self._address(snapshot, path), self._headers(start, end)
            with get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
                hf_raise_for_status(response)
                first, total = place_of(response.status_code, response.headers, asked, start=start)
                take(Answer(first, total, counted(response.iter_bytes())))

        self._ready(asked)
        self._patience.transfer(lambda counted: self._guarded(asked, lambda: read(counted)))

    def _address(self, snapshot: Snapshot, path: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(
            snapshot.repository,
            path,
            repo_type=snapshot.kind,
            revision=snapshot.commit,
            endpoint=self._account.endpoint,
        )

    def _headers(self, start: int, end: int) -> dict[str, str]:
        headers = {
            "User-Agent": f"qlock/{qlock.__version__}",
            "Range": f"bytes={start}-{end - 1}",
            "Accept-Encoding": "identity",
        }
        if self._account.token:
            headers["Authorization"] = f"Bearer {self._account.token}"
        return headers

    def _asked(self, asked: Asked, read: Callable[[], _T]) -> _T:
        """What ``read`` gives, waiting for a busy server, its refusals in our words."""
        self._ready(asked)
        return self._patience.patiently(lambda: self._guarded(asked, read))

    def _guarded(self, asked: Asked, read: Callable[[], _T]) -> _T:
        with self._connections:
            try:
                return read()
            except (QlockError, BusyError):
                raise
            except Exception as error:  # noqa: BLE001 - huggingface_hub raises all kinds; its bugs are raised again
                raise refusal(error, asked, self._account) from None

    def _ready(self, asked: Asked) -> None:
        if self._account.is_offline:
            raise offline_error(asked)
        furnish()

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(
            endpoint=self._account.endpoint,
            token=self._account.token or False,
            library_name="qlock",
            library_version=qlock.__version__,
        )


def open_hub(
    environment: Mapping[str, str], *, clock: Clock, announce: Callable[[str], None] = lambda _: None
) -> RealHub:
    """The Hub that these environment variables name.

    Whatever is wrong with them is said when the Hub is first needed: an ``InputError`` where ``HF_ENDPOINT`` is no
    address, an ``AbsentError`` where the token file cannot be read.
    """
    return RealHub(lambda: account_of(environment), clock=clock, announce=announce)


def _asked_of(snapshot: Snapshot, path: str) -> Asked:
    return Asked(repository=snapshot.repository, revision=snapshot.commit, kind=snapshot.kind, path=path)
