"""Real huggingface_hub against the Hub of `tests/fakes/hub.py`, which says where each answer's shape comes from."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.hub import RealHub, open_hub
from qlock.world.interface import Hub, HubFile, HubListing, Missing, Snapshot
from tests.fakes.hub import SIGNATURE, FakeHub, served
from tests.fakes.repositories import Content
from tests.fakes.world import SetClock

TOKEN = "hf_goodtoken"
OTHER_BYTES = "`sub/m-Q4_0.gguf` of `o/m` arrived with other bytes than the Hub names, and is not used"
VANISHED_HINT = (
    "a file that is here and as locked can still be run; else let the pin move with "
    "`qlock resolve --upgrade NAME`"
)
WEIGHTS = bytes(range(256)) * 40
FIXED = bytes(reversed(range(256))) * 40


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def opened(stub: FakeHub, tmp_path: Path, said: list[str]) -> Callable[..., RealHub]:
    def open_one(**environment: str) -> RealHub:
        home = {"HF_ENDPOINT": stub.endpoint, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
        return open_hub(home | environment, clock=SetClock(), announce=said.append)

    return open_one


@pytest.fixture
def hub(opened: Callable[..., RealHub]) -> RealHub:
    return opened()


@pytest.fixture
def first(stub: FakeHub) -> str:
    """The first commit of `o/m`, which holds two files."""
    return stub.repository("o/m").commit({"sub/m-Q4_0.gguf": WEIGHTS, "README.md": b"# M\n"})


def refused(call: Callable[[], object]) -> tuple[type[QlockError], str, str]:
    with pytest.raises(QlockError) as caught:
        call()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return type(caught.value), caught.value.message, caught.value.hint


def file_named(listing: HubListing, path: str) -> HubFile:
    return next(file for file in listing.files if file.path == path)


# What is listed


def test_a_listing_has_commit_sizes_and_digests_in_two_requests(
    stub: FakeHub, hub: RealHub, first: str
) -> None:
    listing = hub.listing("o/m", "main")
    readme = hashlib.sha1(b"blob 4\0# M\n").hexdigest()
    assert listing.snapshot == Snapshot(repository="o/m", commit=first, kind="model")
    assert listing.files == (
        HubFile(path="README.md", size_bytes=4, oid=readme),
        HubFile(
            path="sub/m-Q4_0.gguf",
            size_bytes=len(WEIGHTS),
            oid=Content(head=WEIGHTS, size=len(WEIGHTS)).oid,
            sha256=f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}",
        ),
    )
    assert stub.paths() == ["GET /api/models/o/m/revision/main", f"GET /api/models/o/m/tree/{first}"]


def test_single_paths_of_a_pinned_commit_take_one_request(stub: FakeHub, hub: RealHub, first: str) -> None:
    listing = hub.listing("o/m", first, paths=["README.md", "absent.gguf", "sub"])
    assert [file.path for file in listing.files] == ["README.md"]
    assert stub.paths() == [f"POST /api/models/o/m/paths-info/{first}"]


def test_thousands_of_files_are_paged_and_many_paths_asked_in_batches(stub: FakeHub, hub: RealHub) -> None:
    stub.repository("o/many").commit({f"f{number:04d}": b"x" for number in range(2_100)})
    listing = hub.listing("o/many", "main")
    assert len(listing.files) == 2_100
    assert len(stub.seen) == 1 + 3
    some = [file.path for file in listing.files[:250]]
    assert [file.path for file in hub.listing("o/many", "main", paths=some).files] == some
    assert len(stub.seen) == 4 + 1 + 3


def test_a_data_set_is_another_repository_than_a_model(stub: FakeHub, hub: RealHub, first: str) -> None:
    stub.repository("o/m", "dataset").commit({"items.jsonl": b"{}\n"})
    listing = hub.listing("o/m", "main", kind="dataset")
    assert [file.path for file in listing.files] == ["items.jsonl"]
    assert hub.fetch(listing.snapshot, listing.files[0]).read_bytes() == b"{}\n"
    assert [file.path for file in hub.listing("o/m", "main").files] == ["README.md", "sub/m-Q4_0.gguf"]


# Ranges


def test_a_range_is_read_through_the_redirect(stub: FakeHub, hub: RealHub, first: str) -> None:
    snapshot = hub.listing("o/m", "main").snapshot
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=100, length=50) == WEIGHTS[100:150]
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=len(WEIGHTS) - 5, length=50) == WEIGHTS[-5:]
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=0, length=0) == b""
    assert stub.bytes_sent == 50 + 5


def test_a_server_without_ranges_gives_the_same_bytes(stub: FakeHub, hub: RealHub, first: str) -> None:
    stub.trouble.no_ranges = True
    snapshot = hub.listing("o/m", "main").snapshot
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=100, length=50) == WEIGHTS[100:150]


def test_a_cut_range_is_read_again(stub: FakeHub, hub: RealHub, first: str, said: list[str]) -> None:
    stub.trouble.cut_after = [20]
    snapshot = hub.listing("o/m", "main").snapshot
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=100, length=50) == WEIGHTS[100:150]
    assert said == ["the Hub: cannot reach it (RemoteProtocolError); waiting 1 s"]


def test_a_long_range_that_is_cut_is_whole_all_the_same(stub: FakeHub, hub: RealHub) -> None:
    weights = os.urandom(10 << 20)
    stub.repository("o/big").commit({"m.gguf": weights})
    stub.trouble.cut_after = [9 << 20]
    snapshot = hub.listing("o/big", "main").snapshot
    assert hub.read_range(snapshot, "m.gguf", start=5, length=len(weights)) == weights[5:]
    assert [one.range for one in stub.seen if one.server == "cdn"] == [
        f"bytes=5-{len(weights) + 4}",
        f"bytes={5 + (9 << 20)}-{len(weights) + 4}",
    ]


def test_a_server_that_sends_nothing_is_given_up(stub: FakeHub, hub: RealHub, first: str) -> None:
    stub.trouble.is_mute = True
    listing = hub.listing("o/m", "main")
    for call in (
        lambda: hub.read_range(listing.snapshot, "sub/m-Q4_0.gguf", start=0, length=5),
        lambda: hub.fetch(listing.snapshot, file_named(listing, "sub/m-Q4_0.gguf")),
    ):
        assert refused(call)[1] == "the Hub did not answer in 4 tries: it sent nothing"
    assert len(stub.paths("cdn")) == 4


def test_at_most_eight_requests_are_under_way(stub: FakeHub, hub: RealHub, first: str) -> None:
    snapshot = hub.listing("o/m", "main").snapshot
    stub.trouble.delay_s = 0.02
    most = under_way = 0
    lock = threading.Lock()

    def body(path: str) -> bytes | None:
        nonlocal most, under_way
        with lock:
            under_way += 1
            most = max(most, under_way)
        threading.Event().wait(0.02)
        with lock:
            under_way -= 1
        return None

    stub.trouble.says = body
    threads = [
        threading.Thread(target=lambda: hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=0, length=10))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 < most <= 8


# Whole files


def test_a_fetched_file_lies_where_huggingface_hub_finds_it(
    stub: FakeHub, hub: RealHub, first: str, tmp_path: Path
) -> None:
    from huggingface_hub import hf_hub_download, scan_cache_dir

    listing = hub.listing("o/m", "main")
    told: list[int] = []
    for file in listing.files:
        assert hub.cached(listing.snapshot, file.path) is None
        path = hub.fetch(listing.snapshot, file, progress=told.append)
        assert path == tmp_path / "hf/hub/models--o--m/snapshots" / first / file.path
        assert path.is_symlink()
        assert hub.cached(listing.snapshot, file.path) == path
        found = hf_hub_download(
            "o/m", file.path, revision=first, cache_dir=tmp_path / "hf/hub", local_files_only=True
        )
        assert found == str(path)
    assert (tmp_path / "hf/hub/models--o--m/snapshots" / first / "sub/m-Q4_0.gguf").read_bytes() == WEIGHTS
    assert told == [0, 4, 0, len(WEIGHTS)]
    report = scan_cache_dir(tmp_path / "hf/hub")
    assert [repo.nb_files for repo in report.repos] == [2]
    assert report.warnings == []


def test_what_huggingface_hub_fetched_is_found_without_a_request(
    stub: FakeHub, hub: RealHub, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants, hf_hub_download

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    listing = hub.listing("o/m", "main")
    path = hf_hub_download(
        "o/m",
        "sub/m-Q4_0.gguf",
        revision=first,
        cache_dir=tmp_path / "hf/hub",
        endpoint=stub.endpoint,
        token=False,
    )
    stub.seen.clear()
    offline = hub.offline()
    assert str(offline.cached(listing.snapshot, "sub/m-Q4_0.gguf")) == path
    assert str(offline.fetch(listing.snapshot, file_named(listing, "sub/m-Q4_0.gguf"))) == path
    assert stub.seen == []


def test_a_file_of_another_commit_with_the_same_bytes_is_not_fetched_again(
    stub: FakeHub, hub: RealHub, first: str
) -> None:
    listing = hub.listing("o/m", "main")
    hub.fetch(listing.snapshot, file_named(listing, "sub/m-Q4_0.gguf"))
    second = stub.repository("o/m").commit({"README.md": b"# New\n"})
    listing = hub.listing("o/m", second)
    stub.seen.clear()
    path = hub.fetch(listing.snapshot, file_named(listing, "sub/m-Q4_0.gguf"))
    assert path.read_bytes() == WEIGHTS
    assert stub.seen == []


def test_wrong_bytes_of_the_right_size_are_refused_and_not_used(
    stub: FakeHub, hub: RealHub, first: str, tmp_path: Path
) -> None:
    stub.trouble.flip_byte = True
    listing = hub.listing("o/m", "main")
    file = file_named(listing, "sub/m-Q4_0.gguf")
    wrong = hashlib.sha256(WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])).hexdigest()
    assert refused(lambda: hub.fetch(listing.snapshot, file)) == (
        InputError,
        f"{OTHER_BYTES}: got `sha256:{wrong}`, expected `{file.sha256}`",
        "fetch it again; if it stays so, a proxy or the storage damages it",
    )
    assert [path for path in (tmp_path / "hf").rglob("*") if not path.is_dir()] == []
    stub.trouble.flip_byte = False
    assert hub.fetch(listing.snapshot, file).read_bytes() == WEIGHTS


def test_another_size_than_the_hub_names_is_refused(stub: FakeHub, hub: RealHub, first: str) -> None:
    listing = hub.listing("o/m", "main")
    named = file_named(listing, "sub/m-Q4_0.gguf")
    file = HubFile(path=named.path, size_bytes=named.size_bytes + 1, oid=named.oid, sha256=named.sha256)
    assert refused(lambda: hub.fetch(listing.snapshot, file)) == (
        InputError,
        f"{OTHER_BYTES.replace('other bytes', 'another size')}: got `10240 bytes`, expected `10241 bytes`",
        "fetch it again; if it stays so, a proxy or the storage damages it",
    )


def test_a_file_of_git_is_checked_by_gits_own_name(stub: FakeHub, hub: RealHub, first: str) -> None:
    listing = hub.listing("o/m", "main")
    file = HubFile(path="README.md", size_bytes=4, oid="0" * 40)
    readme = hashlib.sha1(b"blob 4\0# M\n").hexdigest()
    assert refused(lambda: hub.fetch(listing.snapshot, file))[1] == (
        "`README.md` of `o/m` arrived with other bytes than the Hub names, and is not used: "
        f"got `git:{readme}`, expected `git:{'0' * 40}`"
    )


def test_a_cut_transfer_is_gone_on_with_where_it_was_cut(
    stub: FakeHub, hub: RealHub, first: str, said: list[str]
) -> None:
    stub.trouble.cut_after = [1_000]
    listing = hub.listing("o/m", "main")
    assert hub.fetch(listing.snapshot, file_named(listing, "sub/m-Q4_0.gguf")).read_bytes() == WEIGHTS
    ranges = [one.range for one in stub.seen if one.server == "cdn"]
    assert ranges == [f"bytes=0-{len(WEIGHTS) - 1}", f"bytes=1000-{len(WEIGHTS) - 1}"]
    assert said == ["the Hub: cannot reach it (RemoteProtocolError); waiting 1 s"]
    assert stub.bytes_sent == len(WEIGHTS)


def test_a_later_process_goes_on_where_an_earlier_one_gave_up(
    stub: FakeHub, opened: Callable[..., RealHub], first: str
) -> None:
    stub.trouble.cut_after = [1_000, 0, 0, 0]
    listing = opened().listing("o/m", "main")
    file = file_named(listing, "sub/m-Q4_0.gguf")
    assert refused(lambda: opened().fetch(listing.snapshot, file)) == (
        AbsentError,
        "the Hub did not answer in 4 tries: cannot reach it (RemoteProtocolError)",
        "run it again later",
    )
    stub.seen.clear()
    assert opened().fetch(listing.snapshot, file).read_bytes() == WEIGHTS
    assert [one.range for one in stub.seen if one.server == "cdn"] == [f"bytes=1000-{len(WEIGHTS) - 1}"]


def test_a_resumed_file_with_foreign_bytes_in_it_is_refused(
    stub: FakeHub, opened: Callable[..., RealHub], first: str, tmp_path: Path
) -> None:
    stub.trouble.cut_after = [1_000, 0, 0, 0]
    listing = opened().listing("o/m", "main")
    file = file_named(listing, "sub/m-Q4_0.gguf")
    refused(lambda: opened().fetch(listing.snapshot, file))
    (partial,) = tmp_path.rglob("*.incomplete")
    partial.write_bytes(bytes(1_000))
    damaged = hashlib.sha256(bytes(1_000) + WEIGHTS[1_000:]).hexdigest()
    assert refused(lambda: opened().fetch(listing.snapshot, file))[1] == (
        f"{OTHER_BYTES}: got `sha256:{damaged}`, expected `{file.sha256}`"
    )
    assert opened().fetch(listing.snapshot, file).read_bytes() == WEIGHTS


CHILD = """
import fcntl, sys
def no_flock(*_):
    raise OSError(38, "Function not implemented")
fcntl.flock = no_flock
from qlock.world import clock
from qlock.world.hub import open_hub
endpoint, home = sys.argv[1:]
hub = open_hub({"HF_ENDPOINT": endpoint, "HF_HOME": home, "HOME": home}, clock=clock)
listing = hub.listing("o/m", "main")
print(hub.fetch(listing.snapshot, listing.files[0]))
"""


def test_two_processes_at_once_both_get_the_file_though_flock_does_nothing(
    stub: FakeHub, tmp_path: Path
) -> None:
    weights = os.urandom(3 << 20)
    stub.repository("o/m").commit({"m.gguf": weights})
    stub.trouble.delay_s = 0.2
    command = [sys.executable, "-c", CHILD, stub.endpoint, str(tmp_path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {Path(child.communicate(timeout=60)[0].strip()) for child in children}
    assert [child.returncode for child in children] == [0, 0]
    assert [path.read_bytes() == weights for path in paths] == [True]
    assert list(tmp_path.rglob("*.incomplete")) == []


def test_a_cache_that_cannot_be_written_is_one_line(
    stub: FakeHub, hub: RealHub, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    listing = hub.listing("o/m", "main")
    monkeypatch.setattr(Path, "mkdir", read_only)
    assert refused(lambda: hub.fetch(listing.snapshot, listing.files[0])) == (
        AbsentError,
        f"the Hub's cache `{tmp_path}/hf/hub` cannot be written: read-only file system",
        "set HF_HUB_CACHE to a folder that can be written",
    )


def test_a_file_larger_than_the_disk_is_refused_before_it_is_asked_for(
    stub: FakeHub, hub: RealHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    stub.repository("o/m").commit({"m.gguf": Content(head=b"GGUF", size=1 << 50, digest="ab" * 32)})
    listing = hub.listing("o/m", "main")
    free = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free._replace(free=7))
    assert refused(lambda: hub.fetch(listing.snapshot, listing.files[0])) == (
        AbsentError,
        f"no space left for `m.gguf` in the Hub's cache `{tmp_path}/hf/hub`: got `7` bytes, expected `{1 << 50}`",
        "free some space, or set HF_HUB_CACHE to a folder on another disk",
    )
    assert stub.paths("cdn") == []


def test_a_path_that_leads_out_of_the_cache_is_refused(hub: RealHub, tmp_path: Path) -> None:
    snapshot = Snapshot(repository="o/m", commit="a" * 40, kind="model")
    for path in ("../../up", "/etc/passwd", "a//b", "a\0b"):
        shown = path.replace("\0", "\\x00")
        file = HubFile(path=path, size_bytes=1, oid="a" * 40)
        assert refused(lambda file=file: hub.fetch(snapshot, file)) == (  # type: ignore[misc]
            InputError,
            f"`{shown}` is no path in a repository",
            "",
        )


def test_a_commit_that_is_none_is_refused(hub: RealHub) -> None:
    snapshot = Snapshot(repository="o/m", commit="../../..", kind="model")
    assert refused(lambda: hub.cached(snapshot, "m.gguf")) == (
        InputError,
        "`../../..` is no commit, expected 40 hex digits",
        "",
    )


# What changed upstream


def test_the_commit_that_changed_a_file_is_named(stub: FakeHub, hub: RealHub, first: str) -> None:
    repository = stub.repository("o/m")
    repository.commit({"README.md": b"# Other\n"}, "Edit")
    fix = repository.commit({"sub/m-Q4_0.gguf": FIXED}, "Fix the chat template")
    repository.commit({"README.md": b"# Last\n"}, "Edit again")
    snapshot = Snapshot(repository="o/m", commit=first, kind="model")
    change = hub.changed_since(snapshot, "sub/m-Q4_0.gguf", revision="main")
    assert not isinstance(change, Missing)
    assert (change.commit, change.title, change.date) == (fix, "Fix the chat template", "2026-01-03")
    assert change.file.sha256 == f"sha256:{hashlib.sha256(FIXED).hexdigest()}"
    assert stub.paths() == [
        "POST /api/models/o/m/paths-info/main",
        f"POST /api/models/o/m/paths-info/{first}",
    ]


def test_a_change_is_named_though_the_old_commit_has_vanished(
    stub: FakeHub, hub: RealHub, first: str
) -> None:
    stub.repository("o/m").commit({"sub/m-Q4_0.gguf": FIXED})
    stub.repository("o/m").squash()
    snapshot = Snapshot(repository="o/m", commit=first, kind="model")
    change = hub.changed_since(snapshot, "sub/m-Q4_0.gguf", revision="main")
    assert not isinstance(change, Missing)
    assert change.title == "Squash"


def test_a_file_that_did_not_change_or_is_gone_has_no_change(stub: FakeHub, hub: RealHub, first: str) -> None:
    snapshot = Snapshot(repository="o/m", commit=first, kind="model")
    stub.repository("o/m").commit({"README.md": b"# Other\n"})
    assert hub.changed_since(snapshot, "sub/m-Q4_0.gguf", revision="main") == Missing(
        why="`main` still has the same file"
    )
    stub.repository("o/m").remove("sub/m-Q4_0.gguf")
    assert hub.changed_since(snapshot, "sub/m-Q4_0.gguf", revision="main") == Missing(
        why="`sub/m-Q4_0.gguf` is no longer in `main`"
    )


# Refusals


def test_a_gated_repository_is_listed_and_not_read(stub: FakeHub, hub: RealHub, first: str) -> None:
    stub.repository("o/m").gated = True
    listing = hub.listing("o/m", "main")
    gated = (
        AbsentError,
        "repository `o/m` is gated and this account has no access",
        f"accept the terms at {stub.endpoint}/o/m and log in with `hf auth login`",
    )
    assert refused(lambda: hub.read_range(listing.snapshot, "sub/m-Q4_0.gguf", start=0, length=4)) == gated
    assert refused(lambda: hub.fetch(listing.snapshot, listing.files[0])) == gated


def test_a_member_reads_a_gated_repository(stub: FakeHub, opened: Callable[..., RealHub], first: str) -> None:
    stub.repository("o/m").gated = True
    hub = opened(HF_TOKEN=TOKEN)
    snapshot = hub.listing("o/m", "main").snapshot
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=0, length=4) == WEIGHTS[:4]


def test_an_account_without_access_is_told_the_same(
    stub: FakeHub, opened: Callable[..., RealHub], first: str
) -> None:
    stub.repository("o/m").gated = True
    stub.repository("o/m").private = False
    hub = opened(HF_TOKEN="hf_strangers0")
    assert refused(lambda: hub.listing("o/m", "main")) == (
        AbsentError,
        "the Hub does not know this token",
        "log in anew with `hf auth login`, or unset HF_TOKEN",
    )


def test_what_is_not_there_is_named(stub: FakeHub, hub: RealHub, first: str) -> None:
    stub.repository("o/private").commit({"a": b"x"})
    stub.repository("o/private").private = True
    hint = "check the name, or log in with `hf auth login`"
    assert refused(lambda: hub.listing("o/none", "main")) == (
        AbsentError,
        "there is no repository `o/none` on the Hub, or it is private",
        hint,
    )
    assert refused(lambda: hub.commit_of("o/private", "main", kind="dataset")) == (
        AbsentError,
        "there is no data set `o/private` on the Hub, or it is private",
        hint,
    )
    assert refused(lambda: hub.listing("o/private", "main"))[1] == (
        "there is no repository `o/private` on the Hub, or it is private"
    )
    assert refused(lambda: hub.listing("o/m", "v2")) == (
        AbsentError,
        "repository `o/m` has no revision `v2`",
        "",
    )
    snapshot = Snapshot(repository="o/m", commit=first, kind="model")
    assert refused(lambda: hub.read_range(snapshot, "no.gguf", start=0, length=4)) == (
        AbsentError,
        f"repository `o/m` has no file `no.gguf` at `{first}`",
        "",
    )
    assert refused(lambda: hub.listing("o/m/x y", "main")) == (
        InputError,
        "`o/m/x y` is no name of a repository, expected `OWNER/NAME`",
        "",
    )


def test_a_vanished_commit_is_named(stub: FakeHub, hub: RealHub, first: str) -> None:
    stub.repository("o/m").squash()
    snapshot = Snapshot(repository="o/m", commit=first, kind="model")
    vanished = (
        AbsentError,
        f"commit `{first}` of repository `o/m` has vanished upstream",
        VANISHED_HINT,
    )
    assert refused(lambda: hub.listing("o/m", first)) == vanished
    assert refused(lambda: hub.read_range(snapshot, "README.md", start=0, length=4)) == vanished


def test_a_renamed_repository_is_named_and_its_pinned_files_are_still_read(
    stub: FakeHub, hub: RealHub, first: str
) -> None:
    stub.renamed["p/old"] = "o/m"
    assert refused(lambda: hub.listing("p/old", "main")) == (
        AbsentError,
        "repository `p/old` has been renamed to `o/m`",
        "write the new name in the spec",
    )
    snapshot = Snapshot(repository="p/old", commit=first, kind="model")
    assert hub.read_range(snapshot, "sub/m-Q4_0.gguf", start=0, length=4) == WEIGHTS[:4]
    assert len(hub.listing("p/old", first, paths=["README.md"]).files) == 1


def test_a_rate_limit_is_waited_for_as_long_as_it_asks(
    stub: FakeHub, hub: RealHub, first: str, said: list[str]
) -> None:
    stub.trouble.answers = [(429, {"Retry_After": "7"})]
    assert hub.commit_of("o/m", "main") == first
    assert said == ["the Hub: too many requests (429); waiting 7 s"]
    assert len(stub.seen) == 2


def test_the_hubs_own_header_of_rate_limits_is_read(
    stub: FakeHub, hub: RealHub, first: str, said: list[str]
) -> None:
    stub.trouble.answers = [(429, {"RateLimit": '"api";r=0;t=55'})]
    assert hub.commit_of("o/m", "main") == first
    assert said == ["the Hub: too many requests (429); waiting 55 s"]


@pytest.mark.parametrize("call", ["commit_of", "listing", "paths", "range", "fetch", "changed_since"])
def test_a_long_rate_limit_ends_every_call_after_one_request(
    stub: FakeHub, hub: RealHub, first: str, said: list[str], call: str
) -> None:
    listing = hub.listing("o/m", "main")
    snapshot = listing.snapshot
    calls: dict[str, Callable[[], object]] = {
        "commit_of": lambda: hub.commit_of("o/m", "main"),
        "listing": lambda: hub.listing("o/m", first),
        "paths": lambda: hub.listing("o/m", first, paths=["README.md"]),
        "range": lambda: hub.read_range(snapshot, "README.md", start=0, length=4),
        "fetch": lambda: hub.fetch(snapshot, listing.files[0]),
        "changed_since": lambda: hub.changed_since(snapshot, "README.md", revision="main"),
    }
    stub.seen.clear()
    stub.trouble.always = (429, {"Retry_After": "3600"})
    answer = (
        AbsentError,
        "the Hub asks to wait 3600 s: too many requests (429); at most 120 s are waited",
        "run it again later; a login with `hf auth login` raises the limit",
    )
    assert refused(calls[call]) == answer
    assert refused(calls[call]) == answer
    assert said == []
    assert len(stub.seen) == 1


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_server_with_a_fault_is_asked_four_times(
    stub: FakeHub, hub: RealHub, first: str, said: list[str], status: int
) -> None:
    stub.trouble.always = (status, {})
    why = "it took too long" if status == 408 else "it has a fault or is overloaded"
    assert refused(lambda: hub.listing("o/m", first)) == (
        AbsentError,
        f"the Hub did not answer in 4 tries: {why} ({status})",
        "run it again later",
    )
    assert said == [f"the Hub: {why} ({status}); waiting {wait} s" for wait in (1, 2, 4)]
    assert len(stub.seen) == 4


def test_a_hub_that_nobody_answers_for_is_given_up(opened: Callable[..., RealHub], said: list[str]) -> None:
    hub = opened(HF_ENDPOINT="http://127.0.0.1:9")
    assert refused(lambda: hub.commit_of("o/m", "main")) == (
        AbsentError,
        "the Hub did not answer in 4 tries: cannot reach it (ConnectError)",
        "run it again later",
    )
    assert len(said) == 3


@pytest.mark.parametrize("body", [b"<html>login</html>", b"[]", b"{}", b'{"id": "o/m", "sha": "main"}'])
def test_a_server_that_is_no_hub_is_refused(stub: FakeHub, hub: RealHub, first: str, body: bytes) -> None:
    stub.trouble.says = lambda path: body
    assert refused(lambda: hub.commit_of("o/m", "main")) == (
        AbsentError,
        "the server's answer about repository `o/m` is not one of the Hub's",
        "check HF_ENDPOINT",
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "file", "path": "a", "size": -1, "oid": "0" * 40},
        {"type": "file", "path": "a", "size": "big", "oid": "0" * 40},
        {"type": "file", "path": "a", "size": 1, "oid": "../../x"},
        {"type": "file", "path": "a", "size": 1},
        {
            "type": "file",
            "path": "a",
            "size": 1,
            "oid": "0" * 40,
            "lfs": {"oid": "../x", "size": 1, "pointerSize": 1},
        },
    ],
)
def test_an_entry_that_no_hub_has_is_refused(
    stub: FakeHub, hub: RealHub, first: str, entry: dict[str, object]
) -> None:
    stub.trouble.says = lambda path: json.dumps([entry]).encode() if "/tree/" in path else None
    assert refused(lambda: hub.listing("o/m", "main"))[:2] == (
        AbsentError,
        "the server's answer about repository `o/m` is not one of the Hub's",
    )


# Offline


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_makes_no_request_and_writes_nothing(
    stub: FakeHub, opened: Callable[..., RealHub], first: str, tmp_path: Path, name: str
) -> None:
    hub = opened(**{name: "1"})
    snapshot = Snapshot(repository="o/m", commit=first, kind="model")
    file = HubFile(path="README.md", size_bytes=4, oid=hashlib.sha1(b"blob 4\0# M\n").hexdigest())
    hint = "run it once without --offline and HF_HUB_OFFLINE"
    whole = "repository `o/m` is not in the Hub's cache, and no network may be used"
    assert refused(lambda: hub.commit_of("o/m", "main")) == (AbsentError, whole, hint)
    assert refused(lambda: hub.listing("o/m", first)) == (AbsentError, whole, hint)
    one = "`README.md` of repository `o/m` is not in the Hub's cache, and no network may be used"
    assert refused(lambda: hub.fetch(snapshot, file)) == (AbsentError, one, hint)
    assert refused(lambda: hub.read_range(snapshot, "README.md", start=0, length=4)) == (
        AbsentError,
        one,
        hint,
    )
    assert hub.cached(snapshot, "README.md") is None
    assert stub.seen == []
    assert not (tmp_path / "hf").exists()


# Tokens


@pytest.fixture
def root_log() -> Iterator[io.StringIO]:
    """What a program that logs everything would write."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_token_is_in_no_message_log_address_or_file(
    stub: FakeHub,
    opened: Callable[..., RealHub],
    first: str,
    *,
    root_log: io.StringIO,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = "hf_strangersSecret123"
    stub.members.add(secret)
    hub = opened(HF_TOKEN=secret)
    listing = hub.listing("o/m", "main")
    for file in listing.files:
        hub.fetch(listing.snapshot, file)
    stub.trouble.answers = [(403, {"X_Error_Message": f"token {secret} or hf_another1 lacks the scope"})]
    refusals = [refused(lambda: hub.commit_of("o/m", "main"))]
    stub.members.clear()
    refusals.append(refused(lambda: hub.commit_of("o/m", "main")))
    stub.trouble.always = (503, {})
    refusals.append(refused(lambda: hub.commit_of("o/m", "main")))
    assert [message for _, message, _ in refusals] == [
        "the Hub refuses repository `o/m` (403): token … or hf_… lacks the scope",
        "the Hub does not know this token",
        "the Hub did not answer in 4 tries: it has a fault or is overloaded (503)",
    ]
    assert {one.authorization for one in stub.seen if one.server == "api"} == {f"Bearer {secret}"}
    assert {one.authorization for one in stub.seen if one.server == "cdn"} == {""}
    shown = [*capfd.readouterr(), root_log.getvalue(), repr(hub), repr(hub._account), repr(refusals)]
    shown += [f"{path} {path.read_bytes()!r}" for path in tmp_path.rglob("*") if path.is_file()]
    for text in shown:
        assert secret not in text
        assert SIGNATURE not in text
    assert [one for one in stub.seen if secret in one.path + one.query] == []


def test_a_stored_login_is_used_and_can_be_left_out(
    stub: FakeHub, opened: Callable[..., RealHub], first: str, tmp_path: Path
) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text(f"{TOKEN}\n", encoding="utf-8")
    opened().commit_of("o/m", "main")
    opened(HF_HUB_DISABLE_IMPLICIT_TOKEN="1").commit_of("o/m", "main")
    assert [one.authorization for one in stub.seen] == [f"Bearer {TOKEN}", ""]


def test_only_the_hub_itself_is_asked(stub: FakeHub, hub: RealHub, first: str) -> None:
    hub.commit_of("o/m", "main")
    assert stub.paths() == ["GET /api/models/o/m/revision/main"]


def test_it_is_a_hub(hub: RealHub) -> None:
    one: Hub = hub
    assert one.offline() is not hub
