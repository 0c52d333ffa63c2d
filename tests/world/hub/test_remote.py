from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from qlock.core.source import shown_address
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.hub.remote import RealRemote, _refuse_downgrade
from tests.fakes.hub import SIGNATURE, FakeHub, served
from tests.fakes.world import SetClock

DATA = bytes(range(256)) * 40
SHA256 = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def url(stub: FakeHub) -> str:
    """An address with a signature, of a file in no particular repository."""
    commit = stub.repository("o/m").commit({"dir/m ü.gguf": DATA})
    return f"http://127.0.0.1:{stub.cdn.server_port}/model/o/m/{commit}/dir/m%20%C3%BC.gguf?{SIGNATURE}"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def remote(tmp_path: Path, said: list[str]) -> RealRemote:
    return RealRemote({}, folder=tmp_path / "url", clock=SetClock(), announce=said.append)


def refused(call: Callable[[], object]) -> tuple[type[QlockError], str, str]:
    with pytest.raises(QlockError) as caught:
        call()
    assert SIGNATURE not in str(caught.value) + caught.value.hint
    return type(caught.value), caught.value.message, caught.value.hint


def test_size_and_ranges_are_read(stub: FakeHub, remote: RealRemote, url: str) -> None:
    assert remote.size_bytes(url) == len(DATA)
    assert remote.read_range(url, start=100, length=50) == DATA[100:150]
    assert remote.read_range(url, start=len(DATA) - 5, length=50) == DATA[-5:]
    assert [one.range for one in stub.seen] == [
        "bytes=0-0",
        "bytes=100-149",
        f"bytes={len(DATA) - 5}-{len(DATA) + 44}",
    ]


def test_a_file_is_fetched_once(stub: FakeHub, remote: RealRemote, url: str, tmp_path: Path) -> None:
    told: list[int] = []
    assert remote.cached(url, SHA256) is None
    path = remote.fetch(url, sha256=SHA256, progress=told.append)
    assert path == tmp_path / "url" / SHA256.removeprefix("sha256:") / "m ü.gguf"
    assert path.read_bytes() == DATA
    assert told[-1] == len(DATA)
    stub.seen.clear()
    assert remote.fetch(url, sha256=SHA256) == path == remote.cached(url, SHA256)
    assert stub.seen == []


def test_other_bytes_are_refused_and_not_used(
    stub: FakeHub, remote: RealRemote, url: str, tmp_path: Path
) -> None:
    stub.trouble.flip_byte = True
    wrong = hashlib.sha256(DATA[:-1] + bytes([DATA[-1] ^ 1])).hexdigest()
    other = f"`{shown_address(url)}` has other bytes than the spec or the server says, and is not used"
    assert refused(lambda: remote.fetch(url, sha256=SHA256)) == (
        InputError,
        f"{other}: got `sha256:{wrong}`, expected `{SHA256}`",
        "fetch it again; if it stays so, the file has been replaced",
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_cut_transfer_is_gone_on_with(stub: FakeHub, remote: RealRemote, url: str, said: list[str]) -> None:
    # One byte for the size, then a thousand of the file.
    stub.trouble.cut_after = [1, 1_000]
    assert remote.fetch(url, sha256=SHA256).read_bytes() == DATA
    assert [one.range for one in stub.seen] == [
        "bytes=0-0",
        f"bytes=0-{len(DATA) - 1}",
        f"bytes=1000-{len(DATA) - 1}",
    ]
    assert said == [
        f"`http://127.0.0.1:{stub.cdn.server_port}`: cannot reach it (RemoteProtocolError); waiting 1 s"
    ]


def test_what_an_earlier_fetch_left_is_gone_on_with(
    stub: FakeHub, remote: RealRemote, url: str, tmp_path: Path
) -> None:
    stub.trouble.cut_after = [1, 1_000, 0, 0, 0]
    assert refused(lambda: remote.fetch(url, sha256=SHA256)) == (
        AbsentError,
        f"`http://127.0.0.1:{stub.cdn.server_port}` did not answer in 4 tries: cannot reach it (RemoteProtocolError)",
        "run it again later",
    )
    stub.seen.clear()
    again = RealRemote({}, folder=tmp_path / "url", clock=SetClock())
    assert again.fetch(url, sha256=SHA256).read_bytes() == DATA
    assert [one.range for one in stub.seen] == ["bytes=0-0", f"bytes=1000-{len(DATA) - 1}"]


def test_another_size_than_a_moment_ago_is_a_replaced_file(
    remote: RealRemote, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealRemote, "size_bytes", lambda *_: len(DATA) - 1)
    assert refused(lambda: remote.fetch(url, sha256=SHA256))[1] == (
        f"`{shown_address(url)}` has another size than the spec or the server says, and is not used: "
        f"got `{len(DATA)} bytes`, expected `{len(DATA) - 1} bytes`"
    )


def test_a_server_without_ranges_is_read_from_the_beginning(
    stub: FakeHub, remote: RealRemote, url: str
) -> None:
    stub.trouble.no_ranges = True
    assert remote.size_bytes(url) == len(DATA)
    assert remote.read_range(url, start=5, length=5) == DATA[5:10]
    assert remote.fetch(url, sha256=SHA256).read_bytes() == DATA


def test_what_is_not_there_is_named(remote: RealRemote, url: str) -> None:
    unsigned = url.partition("?")[0]
    assert refused(lambda: remote.size_bytes(unsigned)) == (
        AbsentError,
        f"`{shown_address(url)}` is not there, or not for everybody (403)",
        "",
    )


def test_a_server_that_nobody_answers_for_is_given_up(remote: RealRemote, said: list[str]) -> None:
    assert refused(lambda: remote.size_bytes("http://127.0.0.1:9/m.gguf")) == (
        AbsentError,
        "`http://127.0.0.1:9` did not answer in 4 tries: cannot reach it (ConnectError)",
        "run it again later",
    )
    assert [line.rpartition("; ")[2] for line in said] == ["waiting 1 s", "waiting 2 s", "waiting 4 s"]


@pytest.mark.parametrize(
    "wait, tries, answer",
    [
        ("7", 4, "did not answer in 4 tries: too many requests (429)"),
        ("3600", 1, "asks to wait 3600 s: too many requests (429); at most 120 s are waited"),
    ],
)
def test_a_rate_limit_is_waited_for_within_bounds_and_nobody_begins_again(
    stub: FakeHub, remote: RealRemote, wait: str, tries: int, answer: str
) -> None:
    stub.trouble.always = (429, {"Retry_After": wait})
    for name in ("m", "another"):
        address = f"{stub.endpoint}/{name}.gguf?key=secret"
        assert refused(lambda address=address: remote.size_bytes(address)) == (  # type: ignore[misc]
            AbsentError,
            f"`{stub.endpoint}` {answer}",
            "run it again later",
        )
    assert len(stub.seen) == tries


def test_another_server_is_asked_all_the_same(stub: FakeHub, remote: RealRemote, url: str) -> None:
    refused(lambda: remote.size_bytes("http://127.0.0.1:9/m.gguf"))
    assert remote.size_bytes(url) == len(DATA)


@pytest.mark.parametrize("name", ["", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_makes_no_request(
    stub: FakeHub, url: str, remote: RealRemote, tmp_path: Path, name: str
) -> None:
    offline = RealRemote({name: "1"}, folder=tmp_path, clock=SetClock()) if name else remote.offline()
    assert refused(lambda: offline.fetch(url, sha256=SHA256)) == (
        AbsentError,
        f"`{shown_address(url)}` is not in the cache, and no network may be used",
        "run it once without --offline and HF_HUB_OFFLINE",
    )
    assert stub.seen == []


def test_a_cache_that_cannot_be_written_is_one_line(
    remote: RealRemote, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert refused(lambda: remote.fetch(url, sha256=SHA256)) == (
        AbsentError,
        f"qlock's cache `{tmp_path / 'url'}` cannot be written: read-only file system",
        "set QLOCK_CACHE to a folder that can be written",
    )


def test_an_address_that_cannot_be_asked_is_refused(remote: RealRemote) -> None:
    assert refused(lambda: remote.size_bytes("https://xn--\u00e9/m.gguf?key=secret")) == (
        InputError,
        "`https://xn--\u00e9/m.gguf` is no address that can be asked",
        "",
    )


def test_an_address_without_a_name_is_refused(remote: RealRemote) -> None:
    for address in ("https://h/", "https://h/a/..", "https://h/%2e%2e", "https://h/a%00b"):
        assert refused(lambda address=address: remote.cached(address, SHA256))[1] == (  # type: ignore[misc]
            f"`{shown_address(address)}` names no file"
        )


@pytest.mark.parametrize("to, is_refused", [("http://h/x", True), ("https://h/x", False)])
def test_an_encrypted_address_never_leads_to_a_plain_one(to: str, *, is_refused: bool) -> None:
    response = httpx.Response(302, request=httpx.Request("GET", "https://h/m.gguf"))
    response.next_request = httpx.Request("GET", to)
    if is_refused:
        assert refused(lambda: _refuse_downgrade(response))[1] == (
            "`https://h/m.gguf` leads to an address without https"
        )
    else:
        _refuse_downgrade(response)
