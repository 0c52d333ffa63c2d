"""Files behind plain ``https`` addresses, which have no listing and no digest of their own: the spec brings the sha256.

Lives here: single ranges, and whole files in a folder of qlock's cache, named by their digest. Does not live here: the
Hub, which has its own ways (``world.hub``).

An address may hold a password or a signature, so messages show host and path alone.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from qlock.core.digest import Digest
from qlock.core.source import shown_address
from qlock.errors import AbsentError, InputError
from qlock.world.files import sync_folder, writing_error
from qlock.world.interface import Clock

if TYPE_CHECKING:
    import httpx

MOST_TRIES = 4
MOST_WAIT_S = 120
"""A server that asks for more is not waited for."""
_TIMEOUT_S = 30.0
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_TRUE = {"1", "ON", "YES", "TRUE"}

_T = TypeVar("_T")


class _LaterError(Exception):
    """The server cannot answer now, or the connection broke."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.wait_s = wait_s


class RealRemote:
    """Files behind addresses, over the network.

    Args:
        environment: ``HF_HUB_OFFLINE`` forbids these requests too.
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
        self._is_offline = environment.get("HF_HUB_OFFLINE", "").upper() in _TRUE
        self._folder = folder
        self._clock = clock
        self._announce = announce

    def offline(self) -> RealRemote:
        """The same, except that it makes no request."""
        environment = {**self._environment, "HF_HUB_OFFLINE": "1"}
        return RealRemote(environment, folder=self._folder, clock=self._clock, announce=self._announce)

    def size_bytes(self, url: str) -> int:
        """The size of the file, told by the answer to a range of it.

        Raises:
            AbsentError: It is not there, or nobody says.
        """
        return self._patiently(url, lambda: self._ask(url, 0, 1, lambda _: None))

    def read_range(self, url: str, *, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer only where the file ends.

        Raises:
            AbsentError: It is not there, or the server gives no ranges.
        """

        def read() -> bytes:
            held = bytearray()
            total = self._ask(url, start, start + length, held.extend)
            if len(held) < min(length, total - start):
                raise _LaterError("the transfer was cut")
            return bytes(held[:length])

        return self._patiently(url, read)

    def cached(self, url: str, sha256: Digest) -> Path | None:
        """Where the file lies in the cache; ``None`` when it does not. Makes no request."""
        path = self._place(url, sha256)
        return path if path.is_file() else None

    def fetch(self, url: str, *, sha256: Digest, progress: Callable[[int], None] | None = None) -> Path:
        """Where the file lies in the cache, downloaded first where it does not.

        It is written beside its place and moved there once its digest is right, so that several may fetch it at once.

        Raises:
            AbsentError: The file, the network or the space for it is not there.
            InputError: What came has another digest; it is thrown away.
        """
        path = self._place(url, sha256)
        if path.is_file():
            return path
        beside = path.with_name(f".qlock-{secrets.token_hex(8)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            got = self._downloaded(url, beside, progress or (lambda _: None))
            if got != sha256:
                raise InputError(
                    f"`{shown_address(url)}` has other bytes than the spec says, and is not used: got `{got}`, "
                    f"expected `{sha256}`",
                    hint="fetch it again; if it stays so, the file has been replaced",
                )
            beside.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise writing_error(error, path, "downloaded file") from None
        finally:
            beside.unlink(missing_ok=True)
        return path

    def _downloaded(self, url: str, beside: Path, progress: Callable[[int], None]) -> str:
        """Write the file to ``beside`` and give its digest."""
        hasher = hashlib.sha256()
        have = 0
        total = self.size_bytes(url)
        with beside.open("xb") as file:

            def take(piece: bytes) -> None:
                nonlocal have
                file.write(piece)
                hasher.update(piece)
                have += len(piece)
                progress(have)

            while have < total:
                before = have
                now = self._patiently(url, lambda: self._ask(url, have, total, take))
                if now != total:
                    raise InputError(
                        f"`{shown_address(url)}` was replaced meanwhile: got `{now}` bytes, expected `{total}`"
                    )
                if have == before:
                    raise AbsentError(
                        f"`{shown_address(url)}` ends early: got `{have}` bytes, expected `{total}`"
                    )
            file.flush()
            os.fsync(file.fileno())
        return f"sha256:{hasher.hexdigest()}"

    def _ask(self, url: str, start: int, end: int, take: Callable[[bytes], None]) -> int:
        """Hand the bytes from ``start`` up to ``end`` to ``take``, and give the size of the whole file."""
        import httpx

        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        left = end - start
        try:
            with _client() as client, client.stream("GET", url, headers=headers) as response:
                total = _total(response, url, start)
                for piece in response.iter_bytes():
                    take(piece[:left])
                    left -= len(piece)
                    if left <= 0:
                        break
        except httpx.TooManyRedirects:
            raise AbsentError(f"`{shown_address(url)}` leads on and on without end") from None
        except httpx.HTTPError as error:
            raise _LaterError(f"cannot reach it ({type(error).__name__})") from None
        return total

    def _patiently(self, url: str, ask: Callable[[], _T]) -> _T:
        """What ``ask`` gives, after as many waits as are allowed."""
        if self._is_offline:
            raise AbsentError(
                f"`{shown_address(url)}` is not in the cache, and no network may be used",
                hint="run it once without --offline and HF_HUB_OFFLINE",
            )
        for tries in range(1, MOST_TRIES + 1):
            try:
                return ask()
            except _LaterError as error:
                later = error
            wait_s = float(2 ** (tries - 1)) if later.wait_s is None else later.wait_s
            if tries == MOST_TRIES or wait_s > MOST_WAIT_S:
                break
            self._announce(f"`{shown_address(url)}`: {later.why}; waiting {wait_s:.0f} s")
            self._clock.sleep_s(wait_s)
        asked = "" if later.wait_s is None else f" and asks to wait {later.wait_s:.0f} s"
        raise AbsentError(
            f"`{shown_address(url)}` does not answer{asked}: {later.why}", hint="run it again later"
        )

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


def _total(response: httpx.Response, url: str, start: int) -> int:
    """The size of the whole file, where the answer begins at ``start``."""
    status, headers = response.status_code, response.headers
    if status in _BUSY:
        asked = headers.get("Retry-After", "").strip()
        wait_s = float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else None
        raise _LaterError(f"it is busy ({status})", wait_s)
    if status in {401, 403, 404, 410}:
        raise AbsentError(f"`{shown_address(url)}` is not there, or not for everybody ({status})")
    try:
        if status == 206:
            unit, _, rest = headers["Content-Range"].partition(" ")
            span, _, total = rest.partition("/")
            if unit == "bytes" and int(span.partition("-")[0]) == start:
                return int(total)
        elif status == 200 and start == 0:
            return int(headers["Content-Length"])
    except (KeyError, ValueError):
        pass
    raise AbsentError(
        f"`{shown_address(url)}` cannot be read in parts ({status})",
        hint="download it, and name it with file:",
    )


def _refuse_downgrade(response: httpx.Response) -> None:
    """Refuse to be led from an encrypted address to a plain one."""
    following = response.next_request
    if following is not None and response.request.url.scheme == "https" != following.url.scheme:
        raise AbsentError(
            f"`{shown_address(str(response.request.url))}` leads to an address without https",
            hint="name the file elsewhere",
        )
