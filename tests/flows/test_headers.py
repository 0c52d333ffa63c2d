from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from qlock.core.gguf import Header
from qlock.errors import AbsentError, InputError
from qlock.flows.headers import FIRST_BYTES, header_at, header_of, headers_at
from qlock.world import files
from qlock.world.hub import RealHub, open_hub
from qlock.world.interface import HubListing, Prefix
from tests.broken.make_gguf import STRING, array, gguf, kv, tensor
from tests.fakes.hub import FakeHub, served
from tests.fakes.repositories import Content
from tests.fakes.world import SetClock, fake_world

GIB = 1 << 30
F32_ELEMENTS = 1 << 33


def large(tokens: int) -> Content:
    """A model of 32 GiB with so many tokens in its vocabulary; all of its weights are zero."""
    fields = [
        kv("general.architecture", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, [f"token {number:020d}" for number in range(tokens)]),
    ]
    head = gguf(fields, [tensor("token_embd.weight", (F32_ELEMENTS,))])
    return Content(head=head, size=len(head) + 4 * F32_ELEMENTS, digest=f"{tokens:064x}")


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def hub(stub: FakeHub) -> RealHub:
    return open_hub({"HF_ENDPOINT": stub.endpoint, "HOME": "/nowhere"}, clock=SetClock())


def listed(stub: FakeHub, hub: RealHub, **files: Content | bytes) -> HubListing:
    stub.repository("o/m").commit({f"{name}.gguf": found for name, found in files.items()})
    return hub.listing("o/m", "main")


def test_a_short_header_takes_one_read(stub: FakeHub, hub: RealHub) -> None:
    listing = listed(stub, hub, m=large(10))
    header = header_at(hub, listing.snapshot, "m.gguf", listing.files[0].size_bytes)
    assert header.file_bytes == listing.files[0].size_bytes
    assert [one.range for one in stub.seen if one.server == "cdn"] == [f"bytes=0-{FIRST_BYTES - 1}"]


def test_a_long_header_is_read_on_and_nothing_twice(stub: FakeHub, hub: RealHub) -> None:
    listing = listed(stub, hub, m=large(150_000))
    header = header_at(hub, listing.snapshot, "m.gguf", listing.files[0].size_bytes)
    assert header.values["tokenizer.ggml.tokens"].count == 150_000
    assert [one.range for one in stub.seen if one.server == "cdn"] == [
        f"bytes=0-{FIRST_BYTES - 1}",
        f"bytes={FIRST_BYTES}-{2 * FIRST_BYTES - 1}",
    ]
    assert stub.bytes_sent < 0.002 * 10 * GIB


def test_many_headers_come_in_their_order(stub: FakeHub, hub: RealHub) -> None:
    listing = listed(stub, hub, **{f"m{number:02d}": large(number + 1) for number in range(30)})
    headers = headers_at(hub, [(listing.snapshot, file) for file in listing.files])
    assert [header.values["tokenizer.ggml.tokens"].count for header in headers] == list(range(1, 31))


def test_the_first_error_ends_it(stub: FakeHub, hub: RealHub) -> None:
    listing = listed(stub, hub, a=large(1), b=b"<html>not found</html>")
    with pytest.raises(InputError) as caught:
        headers_at(hub, [(listing.snapshot, file) for file in listing.files])
    assert str(caught.value).startswith("b.gguf: ")


def test_a_rate_limit_is_no_storm(stub: FakeHub, hub: RealHub) -> None:
    listing = listed(stub, hub, **{f"m{number:02d}": large(1) for number in range(30)})
    stub.seen.clear()
    stub.trouble.always = (429, {"Retry_After": "3600"})
    with pytest.raises(AbsentError, match=r"^the Hub asks to wait 3600 s: too many requests \(429\)"):
        headers_at(hub, [(listing.snapshot, file) for file in listing.files])
    assert len(stub.seen) <= 8


def test_the_whole_of_a_tiny_file_is_enough(stub: FakeHub, hub: RealHub) -> None:
    whole = gguf([kv("general.architecture", STRING, "llama")], [])
    listing = listed(stub, hub, m=whole)
    header: Header = header_at(hub, listing.snapshot, "m.gguf", listing.files[0].size_bytes)
    assert header.tensors == ()


def test_of_a_file_that_is_here_no_more_is_read_than_its_header_takes(tmp_path: Path) -> None:
    content = large(150_000)
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(content.head)
        file.truncate(content.size)
    asked: list[int] = []

    class Counting:
        read_bounded, write_atomic = staticmethod(files.read_bounded), staticmethod(files.write_atomic)

        @staticmethod
        def read_prefix(path: Path, max_bytes: int, what: str) -> Prefix:
            asked.append(max_bytes)
            return files.read_prefix(path, max_bytes, what)

    world = msgspec.structs.replace(fake_world(tmp_path), files=Counting())
    assert header_of(world, path).values["tokenizer.ggml.tokens"].count == 150_000
    assert asked == [FIRST_BYTES, 2 * FIRST_BYTES]


def test_a_file_that_is_not_there_is_absent(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=r"^model `.*none.gguf` is not there"):
        header_of(fake_world(tmp_path), tmp_path / "none.gguf")
