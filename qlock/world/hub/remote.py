"""Files behind plain ``https`` addresses, which have no listing and no digest of their own: the spec brings the sha256.

Lives here: single ranges, and whole files in a folder of qlock's cache, named by their digest. Does not live here: the
Hub's own ways (``world.hub``), waiting (``patience``), and how a file gets into its place (``partial``).

An address may hold a password or a signature, so messages show host and path alone.
"""

from __future__ import annotations

import hashlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qlock.core.digest import Digest
from qlock.core.source import shown_address
from qlock.errors import AbsentError, InputError
from qlock.world.files import shown
from qlock.world.hub.account import is_offline
from qlock.world.hub.partial import Answer, Parcel, Words, bring, place_in, read_span
from qlock.world.hub.patience import BUSY, BusyError, Patience, busy
from qlock.world.interface import Clock

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 30.0


class RealRemote:
    """Files behind addresses, over the network.

    Args:
        environment: What forbids requests to the Hub forbids these too.
        folder: Where fetched files are kept; made when one is.
        clock: For waiting.
        announce: Told about each wait, in one line.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        folder: Path,
        clock: Clock,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._environment = environment
        self._is_offline = is_offline(environment)
        self._folder = folder
        self._clock = clock
        self._announce = announce
        self._servers: dict[str, Patience] = {}
        self._lock = threading.Lock()

    def offline(self) -> RealRemote:
        """The same, except that it makes no request."""
        environment = {**self._environment, "HF_HUB_OFFLINE": "1"}
        return RealRemote(environment, folder=self._folder, clock=self._clock, announce=self._announce)

    def size_bytes(self, url: str) -> int:
        """The size of the file, told by the answer to a range of it.

        Raises:
            AbsentError: It is not there, or nobody says.
        """
        found: list[int] = []

        def take(answer: Answer) -> None:
            found.append(answer.total_bytes)
            next(answer.pieces, b"")

        self._stream(url, lambda: (0, 1), take)
        return found[-1]

    def read_range(self, url: str, *, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer only where the file ends.

        Raises:
            AbsentError: It is not there, or the server does not say how long it is.
        """
        return read_span(lambda span, take: self._stream(url, span, take), start=start, length=length)

    def cached(self, url: str, sha256: Digest) -> Path | None:
        """Where the file lies in the cache; ``None`` when it does not. Makes no request."""
        path = self._place(url, sha256)
        return path if path.is_file() else None

    def fetch(self, url: str, *, sha256: Digest, progress: Callable[[int], None] | None = None) -> Path:
        """Where the file lies in the cache, downloaded first where it does not, from where an earlier try was cut.

        Raises:
            AbsentError: The file, the network or the space for it is not there.
            InputError: What came has another size or digest; it is thrown away.
        """
        path = self._place(url, sha256)
        if path.is_file():
            return path
        name = f"`{shown_address(url)}`"

        def wrong(what: str, got: str, expected: str) -> InputError:
            mark = "sha256:" if what == "other bytes" else ""
            return InputError(
                f"{name} has {what} than the spec or the server says, and is not used: got `{mark}{got}`, "
                f"expected `{mark}{expected}`",
                hint="fetch it again; if it stays so, the file has been replaced",
            )

        parcel = Parcel(
            path=path,
            size_bytes=self.size_bytes(url),
            digest=sha256.partition(":")[2],
            new_hasher=hashlib.sha256,
            words=Words(
                file=name,
                kind="downloaded file",
                place=f"qlock's cache `{shown(self._folder)}`",
                variable="QLOCK_CACHE",
                wrong=wrong,
            ),
        )
        bring(parcel, lambda span, take: self._stream(url, span, take), progress or (lambda _: None))
        return path

    def _stream(self, url: str, span: Callable[[], tuple[int, int]], take: Callable[[Answer], None]) -> None:
        """Ask for the bytes of ``span`` and hand them to ``take``; again, where the server is busy or cuts them off."""
        import httpx

        def read(counted: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
            start, end = span()
            headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
            try:
                with _client() as client, client.stream("GET", url, headers=headers) as response:
                    first, total = _place_of(response, url, start)
                    take(Answer(first, total, counted(_bounded(response.iter_bytes(), end - first))))
            except httpx.TooManyRedirects:
                raise AbsentError(f"`{shown_address(url)}` leads on and on without end") from None
            except httpx.InvalidURL:
                raise InputError(f"`{shown_address(url)}` is no address that can be asked") from None
            except httpx.HTTPError as error:
                raise BusyError(f"cannot reach it ({type(error).__name__})") from None

        if self._is_offline:
            raise AbsentError(
                f"`{shown_address(url)}` is not in the cache, and no network may be used",
                hint="run it once without --offline and HF_HUB_OFFLINE",
            )
        self._patience(url).transfer(read)

    def _patience(self, url: str) -> Patience:
        """That of the address's server."""
        parts = urllib.parse.urlsplit(url)
        server = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        with self._lock:
            if server not in self._servers:
                name = f"`{shown_address(urllib.parse.urljoin(url, '/')).rstrip('/')}`"
                self._servers[server] = Patience(self._clock, self._announce, name=name)
            return self._servers[server]

    def _place(self, url: str, sha256: Digest) -> Path:
        return self._folder / sha256.partition(":")[2] / _name(url)


def _client() -> httpx.Client:
    import httpx

    return httpx.Client(
        follow_redirects=True,
        max_redirects=5,
        timeout=_TIMEOUT_S,
        event_hooks={"response": [_refuse_downgrade]},
    )


def _name(url: str) -> str:
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]
    if name in {"", ".", ".."} or "\0" in name or len(name.encode(errors="replace")) > 255:
        raise InputError(f"`{shown_address(url)}` names no file")
    return name


def _place_of(response: httpx.Response, url: str, start: int) -> tuple[int, int]:
    """Where the bytes of an answer begin, and the size of the whole file."""
    status = response.status_code
    if status in BUSY:
        raise busy(status, response.headers)
    if status in {401, 403, 404, 410}:
        raise AbsentError(f"`{shown_address(url)}` is not there, or not for everybody ({status})")
    place = place_in(status, response.headers, start=start)
    if place is None:
        raise AbsentError(
            f"`{shown_address(url)}` is no file that can be read in parts ({status})",
            hint="download it, and name it with file:",
        )
    return place


def _bounded(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    """The first ``most`` bytes."""
    for piece in pieces:
        yield piece[:most]
        most -= len(piece)
        if most <= 0:
            return


def _refuse_downgrade(response: httpx.Response) -> None:
    """Refuse to be led from an encrypted address to a plain one."""
    following = response.next_request
    if following is not None and response.request.url.scheme == "https" != following.url.scheme:
        raise AbsentError(
            f"`{shown_address(str(response.request.url))}` leads to an address without https",
            hint="name the file elsewhere",
        )
