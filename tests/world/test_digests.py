"""Digests of files that are large, that change meanwhile, that were hashed before."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import AbsentError, InputError
from qlock.world import digests
from qlock.world.digests import blake3_file, copy_file, digest_file, spans_digest

OLD_NS = 1_600_000_000_000_000_000


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers so small that little files take many turns."""
    monkeypatch.setattr(digests, "_BUFFER_BYTES", 1000)
    monkeypatch.setattr(digests, "_SPAN_BUFFER_BYTES", 100)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file had been there for long: ctime cannot be set, so the step before "now" is made negative."""
    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**12))
    # Temporary folders may lie in memory, where nothing is remembered.
    monkeypatch.setattr(digests, "_IN_MEMORY", frozenset())


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def expected(data: bytes) -> tuple[str, str]:
    return f"sha256:{hashlib.sha256(data).hexdigest()}", f"blake3:{blake3(data).hexdigest()}"


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "digests").iterdir()) if cache.exists() else []


class TestOnePass:
    @pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2000, 12_345])
    def test_both_digests_are_of_all_bytes(self, tmp_path: Path, size: int) -> None:
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        seen = digest_file(written(tmp_path / "f", data), cache=None)
        assert (seen.sha256, seen.blake3) == expected(data)
        assert (seen.size_bytes, seen.cached) == (size, False)

    def test_blake3_alone_is_the_same(self, tmp_path: Path) -> None:
        path = written(tmp_path / "f", b"weights" * 1000)
        seen = blake3_file(path, cache=None)
        assert seen.blake3 == digest_file(path, cache=None).blake3
        assert (seen.size_bytes, seen.cached) == (7000, False)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(AbsentError) as caught:
            digest_file(tmp_path / "f", cache=tmp_path / "cache")
        assert str(caught.value) == f"file `{tmp_path}/f` is not there"

    def test_a_fifo(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(InputError) as caught:
            blake3_file(tmp_path / "fifo", cache=None)
        assert str(caught.value) == f"file `{tmp_path}/fifo` is a FIFO, expected a regular file"

    def test_a_disk_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
            raise OSError(errno.EIO, "Input/output error")

        path = written(tmp_path / "f", b"weights")
        monkeypatch.setattr(os, "preadv", broken)
        for look in (lambda: digest_file(path, cache=None), lambda: spans_digest(path, [(0, 7)])):
            with pytest.raises(AbsentError) as caught:
                look()
            assert str(caught.value) == f"file `{path}` cannot be used: input/output error"

    @given(data=st.binary(max_size=5000))
    def test_any_bytes(self, data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
        path = written(tmp_path_factory.mktemp("any") / "f", data)
        seen = digest_file(path, cache=None)
        assert (seen.sha256, seen.blake3) == expected(data)


class TestChangedMeanwhile:
    @staticmethod
    def changing(monkeypatch: pytest.MonkeyPatch, change: object) -> None:
        """Have ``change`` happen at the first read."""
        real = os.preadv
        assert callable(change)
        done: list[bool] = []

        def preadv(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
            if not done:
                done.append(True)
                change()
            return real(descriptor, buffers, offset)

        monkeypatch.setattr(os, "preadv", preadv)

    def refused(self, path: Path) -> None:
        with pytest.raises(InputError) as caught:
            digest_file(path, cache=path.parent / "cache")
        assert str(caught.value) == f"file `{path}` was changed while it was read"
        assert caught.value.hint == "wait until nothing writes to it and run again"
        assert entries(path.parent / "cache") == []

    def test_it_was_cut_short(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None) -> None:
        path = written(tmp_path / "f", bytes(5000))
        self.changing(monkeypatch, lambda: os.truncate(path, 100))
        self.refused(path)

    def test_it_grew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None) -> None:
        path = written(tmp_path / "f", bytes(5000))
        self.changing(monkeypatch, lambda: os.truncate(path, 1 << 40))
        self.refused(path)

    def test_bytes_changed_and_mtime_was_set_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None
    ) -> None:
        path = written(tmp_path / "f", bytes(5000))
        os.utime(path, ns=(OLD_NS, OLD_NS))

        def change() -> None:
            before = path.stat().st_ctime_ns
            # Time stamps move in steps of some milliseconds.
            while path.stat().st_ctime_ns == before:
                path.write_bytes(b"x" * 5000)
                os.utime(path, ns=(OLD_NS, OLD_NS))

        self.changing(monkeypatch, change)
        self.refused(path)

    def test_another_file_took_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None
    ) -> None:
        path = written(tmp_path / "f", bytes(5000))
        other = written(tmp_path / "g", bytes(5000))
        self.changing(monkeypatch, lambda: other.replace(path))
        self.refused(path)

    def test_a_link_came_to_lead_elsewhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None
    ) -> None:
        for name in ("old", "new"):
            written(tmp_path / name, bytes(5000))
        (tmp_path / "f").symlink_to("old")
        (tmp_path / "next").symlink_to("new")
        self.changing(monkeypatch, lambda: (tmp_path / "next").replace(tmp_path / "f"))
        self.refused(tmp_path / "f")

    def test_spans_are_refused_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = written(tmp_path / "f", bytes(5000))
        self.changing(monkeypatch, lambda: os.truncate(path, 100))
        with pytest.raises(InputError) as caught:
            spans_digest(path, [(0, 5000)])
        assert str(caught.value) == f"file `{path}` was changed while it was read"


class TestCache:
    def test_the_second_time_is_cached_and_says_so(self, tmp_path: Path, settled: None) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        first = digest_file(path, cache=cache)
        second = digest_file(path, cache=cache)
        assert (first.cached, second.cached) == (False, True)
        assert (second.size_bytes, second.sha256, second.blake3) == (7, first.sha256, first.blake3)
        assert blake3_file(path, cache=cache).cached

    def test_rehash_reads_the_bytes(self, tmp_path: Path, settled: None) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        digest_file(path, cache=cache)
        assert not digest_file(path, cache=cache, rehash=True).cached
        assert not blake3_file(path, cache=cache, rehash=True).cached

    def test_blake3_alone_does_not_speak_for_sha256(self, tmp_path: Path, settled: None) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        blake3_file(path, cache=cache)
        both = digest_file(path, cache=cache)
        assert (both.cached, both.sha256) == (False, expected(b"weights")[0])
        assert digest_file(path, cache=cache).cached

    def test_blake3_taken_again_keeps_what_is_known_of_sha256(self, tmp_path: Path, settled: None) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        digest_file(path, cache=cache)
        blake3_file(path, cache=cache, rehash=True)
        assert digest_file(path, cache=cache).cached

    def test_blake3_that_is_another_takes_sha256_with_it(self, tmp_path: Path, settled: None) -> None:
        # The disk lost a bit: the same file, the same time stamps, other bytes.
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        digest_file(path, cache=cache)
        (entry,) = entries(cache)
        entry.write_bytes(
            entry.read_bytes().replace(expected(b"weights")[1].encode(), expected(b"w")[1].encode())
        )
        blake3_file(path, cache=cache, rehash=True)
        seen = digest_file(path, cache=cache)
        assert (seen.cached, seen.sha256) == (False, expected(b"weights")[0])

    def test_a_young_file_is_not_remembered(self, tmp_path: Path) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        # An old mtime does not help: ctime says when the file was really touched.
        os.utime(path, ns=(OLD_NS, OLD_NS))
        digest_file(path, cache=cache)
        assert entries(cache) == []
        assert not digest_file(path, cache=cache).cached

    def test_a_changed_file_is_read_again(self, tmp_path: Path, settled: None) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        digest_file(path, cache=cache)
        path.write_bytes(b"WEIGHTS!")
        seen = digest_file(path, cache=cache)
        assert (seen.cached, seen.sha256) == (False, expected(b"WEIGHTS!")[0])

    def test_another_file_of_the_same_bytes_and_times_is_read(self, tmp_path: Path, settled: None) -> None:
        cache = tmp_path / "cache"
        for name in ("f", "g"):
            path = written(tmp_path / name, b"weights")
            os.utime(path, ns=(OLD_NS, OLD_NS))
            assert not digest_file(path, cache=cache).cached

    @pytest.mark.parametrize("key", ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"])
    def test_files_that_differ_in_one_mark_are_two(self, tmp_path: Path, key: str) -> None:
        marks = dict.fromkeys(("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"), 7)

        def place(marks: dict[str, int]) -> Path:
            seen = os.stat_result(
                (0, marks["st_ino"], marks["st_dev"], 1, 0, 0, marks["st_size"], 0, 0, 0), marks
            )
            return digests._place(tmp_path, digests._identity(seen))

        assert place({**marks, key: 8}) != place(marks) == place(dict(marks))

    def test_a_second_name_of_one_file_is_known(self, tmp_path: Path, settled: None) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        (tmp_path / "link").symlink_to(path)
        digest_file(path, cache=cache)
        assert digest_file(tmp_path / "link", cache=cache).cached

    @pytest.mark.parametrize(
        "damage", [b"", b"{", b"\xff", b"[1]", b'{"device":1}', b"null", bytes(5000)], ids=repr
    )
    def test_a_damaged_entry_is_ignored_and_written_again(
        self, tmp_path: Path, damage: bytes, settled: None
    ) -> None:
        path, cache = written(tmp_path / "f", b"weights"), tmp_path / "cache"
        digest_file(path, cache=cache)
        (entry,) = entries(cache)
        whole = entry.read_bytes()
        entry.write_bytes(damage)
        assert digest_file(path, cache=cache).cached is False
        assert entry.read_bytes() == whole

    def test_an_entry_under_a_wrong_name_does_not_speak_for_another_file(
        self, tmp_path: Path, settled: None
    ) -> None:
        cache = tmp_path / "cache"
        digest_file(written(tmp_path / "f", b"weights"), cache=cache)
        (first,) = entries(cache)
        digest_file(written(tmp_path / "g", b"others!"), cache=cache)
        (second,) = set(entries(cache)) - {first}
        second.write_bytes(first.read_bytes())
        seen = digest_file(tmp_path / "g", cache=cache)
        assert (seen.cached, seen.sha256) == (False, expected(b"others!")[0])

    def test_a_cache_that_cannot_be_written_is_gone_without(self, tmp_path: Path, settled: None) -> None:
        path = written(tmp_path / "f", b"weights")
        # A file lies where the cache's folder should be made.
        seen = digest_file(path, cache=path)
        assert (seen.cached, seen.sha256) == (False, expected(b"weights")[0])


class TestSpans:
    def test_each_span_has_its_own_digest(self, tmp_path: Path) -> None:
        data = bytes(range(256)) * 20
        path = written(tmp_path / "f", data)
        spans = [(0, 5120), (100, 1), (5120, 0), (7, 333), (7, 333)]
        assert spans_digest(path, spans) == tuple(expected(data[at : at + size])[1] for at, size in spans)

    def test_no_spans(self, tmp_path: Path) -> None:
        assert spans_digest(written(tmp_path / "f", b""), []) == ()

    @pytest.mark.parametrize("span", [(0, 11), (10, 1), (-1, 1), (5, -1), (1 << 70, 1), (0, 1 << 70)])
    def test_a_span_outside_the_file(self, tmp_path: Path, span: tuple[int, int]) -> None:
        path = written(tmp_path / "f", bytes(10))
        with pytest.raises(InputError) as caught:
            spans_digest(path, [(0, 10), span])
        assert (
            str(caught.value) == f"span `1` does not lie in file `{path}`: got bytes `{span[0]}` to"
            f" `{span[0] + span[1]}`, expected at most `10`"
        )

    @given(data=st.binary(min_size=1, max_size=2000), cuts=st.lists(st.integers(0, 2000), max_size=8))
    def test_any_spans(self, data: bytes, cuts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
        path = written(tmp_path_factory.mktemp("spans") / "f", data)
        spans = [(at % len(data), len(data) - at % len(data)) for at in cuts]
        assert spans_digest(path, spans) == tuple(expected(data[at : at + size])[1] for at, size in spans)


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on tmpfs, with every file settled."""
    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**12))
    shared = Path("/dev/shm")
    mounts = Path("/proc/self/mounts").read_text().split("\n")
    if not any(line.split()[1:3] == ["/dev/shm", "tmpfs"] for line in mounts if line):
        pytest.skip("/dev/shm is no tmpfs here")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


class TestMappedWrites:
    def test_a_change_through_a_mapping_on_tmpfs_is_seen(self, in_memory: Path, tmp_path: Path) -> None:
        path = written(in_memory / "f", b"a" * 5000)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0] = ord("a")
            first = blake3_file(path, cache=tmp_path / "cache")
            stamps = path.stat().st_mtime_ns, path.stat().st_ctime_ns
            mapped[0] = ord("b")
            assert (path.stat().st_mtime_ns, path.stat().st_ctime_ns) == stamps
            second = blake3_file(path, cache=tmp_path / "cache")
        assert (first.cached, second.cached) == (False, False)
        assert second.blake3 == expected(b"b" + b"a" * 4999)[1] != first.blake3
        assert entries(tmp_path / "cache") == []

    @pytest.mark.usefixtures("settled")
    def test_a_file_is_written_out_before_it_is_remembered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        monkeypatch.setattr(os, "fdatasync", asked.append)
        path = written(tmp_path / "f", b"weights")
        assert [blake3_file(path, cache=tmp_path / "c").cached for _ in range(2)] == [False, True]
        assert len(asked) == 1
        blake3_file(path, cache=None)
        assert len(asked) == 1

    @pytest.mark.usefixtures("settled")
    def test_what_cannot_be_written_out_is_not_remembered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", broken)
        path = written(tmp_path / "f", b"weights")
        assert [blake3_file(path, cache=tmp_path / "c").cached for _ in range(2)] == [False, False]


class TestCopies:
    @given(data=st.binary(max_size=3000))
    def test_a_copy_has_the_bytes_and_its_digest_is_that_of_the_file(
        self, data: bytes, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        place = tmp_path_factory.mktemp("copies")
        path = written(place / "f", data)
        found = copy_file(path, place / "copy")
        assert (place / "copy").read_bytes() == data
        assert (found.size_bytes, found.blake3, found.cached) == (
            len(data),
            blake3_file(path, cache=None).blake3,
            False,
        )
        assert stat.S_IMODE((place / "copy").stat().st_mode) == 0o600

    def test_several_buffers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(digests, "_BUFFER_BYTES", 7)
        path = written(tmp_path / "f", bytes(range(256)))
        assert copy_file(path, tmp_path / "copy").blake3 == expected(path.read_bytes())[1]
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()

    def test_a_file_in_the_way_stays(self, tmp_path: Path) -> None:
        path, other = written(tmp_path / "f", b"new"), written(tmp_path / "copy", b"old")
        with pytest.raises(AbsentError) as caught:
            copy_file(path, other)
        assert str(caught.value) == f"file `{other}` cannot be used: file exists"
        assert other.read_bytes() == b"old"

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        path = written(tmp_path / "f", b"new")
        with pytest.raises(AbsentError) as caught:
            copy_file(path, tmp_path / "nowhere" / "copy")
        assert str(caught.value) == f"folder `{tmp_path}/nowhere` is not there"

    def test_a_full_disk_leaves_no_half_copy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = written(tmp_path / "f", b"new")

        def no_space(descriptor: int, data: memoryview) -> None:
            os.write(descriptor, data[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(digests, "write_all", no_space)
        with pytest.raises(AbsentError) as caught:
            copy_file(path, tmp_path / "copy")
        assert str(caught.value) == f"no space left to write file `{tmp_path}/copy`"
        assert not (tmp_path / "copy").exists()

    def test_a_file_that_changes_meanwhile_leaves_no_copy(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = written(tmp_path / "f", b"old")

        def change(descriptor: int, data: memoryview) -> None:
            path.write_bytes(b"other")

        monkeypatch.setattr(digests, "write_all", change)
        with pytest.raises(InputError) as caught:
            copy_file(path, tmp_path / "copy")
        assert str(caught.value) == f"file `{path}` was changed while it was read"
        assert not (tmp_path / "copy").exists()
