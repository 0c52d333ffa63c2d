"""Files with hostile names, kinds and timing; each is a real one in a folder of its own."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qlock.core.escape import visible
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.files import (
    error_of,
    path_error,
    read_bounded,
    read_lines,
    read_prefix,
    shown,
    write_atomic,
)

NAMES = ["plain", "with space", "ümläut", "漢字", "🦙", "quote'\"", "back\\slash", "-rf", "a" * 255]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def file_limit() -> Iterator[int]:
    """The kernel allows files of at most so many bytes, and cuts a longer write short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield 4096
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestReadBounded:
    @pytest.mark.parametrize("name", NAMES)
    def test_any_name_is_read(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"four")
        assert read_bounded(tmp_path / name, 4, "spec") == b"four"

    def test_a_name_that_is_no_utf8_is_read_and_shown_escaped(self, tmp_path: Path) -> None:
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.toml"))
        path.write_bytes(b"four")
        assert read_bounded(path, 4, "spec") == b"four"
        with pytest.raises(InputError) as caught:
            read_bounded(path, 3, "spec")
        assert (
            str(caught.value)
            == f"spec `{tmp_path}/\\xff.toml` is too large: got `4` bytes, expected at most `3`"
        )

    def test_an_empty_file_is_empty(self, tmp_path: Path) -> None:
        (tmp_path / "spec").touch()
        assert read_bounded(tmp_path / "spec", 0, "spec") == b""

    def test_a_file_that_hides_its_size_is_bounded_too(self) -> None:
        # Files below /proc say that they are empty.
        with pytest.raises(InputError) as caught:
            read_bounded(Path("/proc/self/maps"), 10, "memory map")
        assert (
            str(caught.value)
            == "memory map `/proc/self/maps` is too large: got `11` bytes, expected at most `10`"
        )

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(AbsentError) as caught:
            read_bounded(tmp_path / "spec", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/spec` is not there"

    def test_a_file_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "spec").touch()
        with pytest.raises(AbsentError) as caught:
            read_bounded(tmp_path / "spec/more", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/spec/more` is not there"

    def test_a_dangling_link(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("nowhere")
        with pytest.raises(AbsentError) as caught:
            read_bounded(tmp_path / "link", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/link` is not there"

    def test_a_link_that_leads_to_itself(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("link")
        with pytest.raises(InputError) as caught:
            read_bounded(tmp_path / "link", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/link` is a symbolic link that leads back to itself"

    def test_a_fifo_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(InputError) as caught:
            read_bounded(tmp_path / "fifo", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/fifo` is a FIFO, expected a regular file"

    def test_a_fifo_that_took_the_name_after_the_look(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "spec").touch()
        looked = (tmp_path / "spec").stat()
        (tmp_path / "spec").unlink()
        os.mkfifo(tmp_path / "spec")
        monkeypatch.setattr(Path, "stat", lambda path: looked)
        with pytest.raises(InputError) as caught:
            read_bounded(tmp_path / "spec", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/spec` is a FIFO, expected a regular file"

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            read_bounded(tmp_path, 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}` is a folder, expected a regular file"

    def test_a_device(self) -> None:
        with pytest.raises(InputError) as caught:
            read_bounded(Path("/dev/zero"), 10, "spec")
        assert str(caught.value) == "spec `/dev/zero` is a device, expected a regular file"

    def test_a_socket(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            with pytest.raises(InputError) as caught:
                read_bounded(Path("socket"), 10, "spec")
        assert str(caught.value) == "spec `socket` is a socket, expected a regular file"

    def test_a_disk_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(descriptor: int, size: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        (tmp_path / "spec").write_bytes(b"x")
        monkeypatch.setattr(os, "read", broken)
        with pytest.raises(AbsentError) as caught:
            read_bounded(tmp_path / "spec", 10, "spec")
        assert str(caught.value) == f"spec `{tmp_path}/spec` cannot be used: input/output error"

    def test_a_name_with_a_zero_byte(self) -> None:
        with pytest.raises(InputError) as caught:
            read_bounded(Path("a\0b"), 10, "spec")
        assert str(caught.value) == "spec `a\\x00b` is no possible file name: embedded null byte"

    def test_a_name_that_no_bytes_can_spell(self) -> None:
        with pytest.raises(InputError) as caught:
            read_bounded(Path("a\ud800b"), 10, "spec")
        assert str(caught.value).startswith("spec `a\\ud800b` is no possible file name: ")

    def test_a_name_that_is_too_long(self) -> None:
        with pytest.raises(InputError) as caught:
            read_bounded(Path("/" + 256 * "a"), 10, "spec")
        assert str(caught.value) == f"spec `/{256 * 'a'}` has too long a name"

    @given(name=st.text(min_size=1, max_size=300))
    def test_any_name_gives_bytes_or_our_error_in_one_line(self, name: str) -> None:
        try:
            read_bounded(Path("/nowhere-at-all") / name.lstrip("/"), 10, "spec")
        except QlockError as error:
            message = str(error)
        # A name of slashes alone is the folder's own.
        assert message == visible(message)
        assert len(message.splitlines()) == 1


class TestPathError:
    def test_what_a_path_alone_brings_about(self) -> None:
        with pytest.raises(OSError, match="too long") as caught:
            Path("/" + 256 * "a").exists()
        error = path_error(caught.value)
        assert error is not None
        assert (str(error), error.exit_code) == (f"path `/{256 * 'a'}` has too long a name", 6)

    @pytest.mark.parametrize(
        "error",
        [
            FileNotFoundError(errno.ENOENT, "gone", "/a"),
            OSError(errno.ENAMETOOLONG, "no path"),
            RuntimeError("a"),
        ],
    )
    def test_everything_else_is_not_about_the_path(self, error: Exception) -> None:
        assert path_error(error) is None


class TestReadPrefix:
    def test_the_first_bytes_and_the_size_of_all(self, tmp_path: Path) -> None:
        (tmp_path / "weights").write_bytes(b"GGUFrest")
        prefix = read_prefix(tmp_path / "weights", 4, "weights")
        assert (prefix.data, prefix.size_bytes) == (b"GGUF", 8)

    def test_a_shorter_file_is_given_whole(self, tmp_path: Path) -> None:
        (tmp_path / "weights").write_bytes(b"GG")
        prefix = read_prefix(tmp_path / "weights", 4, "weights")
        assert (prefix.data, prefix.size_bytes) == (b"GG", 2)

    def test_more_than_one_piece(self, tmp_path: Path) -> None:
        data = bytes(range(256)) * 10_000
        (tmp_path / "weights").write_bytes(data)
        assert read_prefix(tmp_path / "weights", 2_000_000, "weights").data == data[:2_000_000]


class TestReadLines:
    @given(data=st.lists(st.binary(max_size=9) | st.just(b"\n"), max_size=12).map(b"".join))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_file_is_cut_after_each_newline(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "record").write_bytes(data)
        lines = list(read_lines(tmp_path / "record", len(data), "record"))
        assert b"".join(lines) == data
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines[:-1])

    def test_lines_longer_than_a_piece_are_whole(self, tmp_path: Path) -> None:
        lines = [b"a" * 3_000_000 + b"\n", b"\n", b"b" * ((1 << 20) - 2) + b"\n", b"c" * (1 << 20)]
        (tmp_path / "record").write_bytes(b"".join(lines))
        assert list(read_lines(tmp_path / "record", 10_000_000, "record")) == lines

    def test_a_file_that_is_too_long_is_refused_where_it_becomes_so(self, tmp_path: Path) -> None:
        (tmp_path / "record").write_bytes(b"a\nb\n")
        with pytest.raises(InputError) as caught:
            list(read_lines(tmp_path / "record", 3, "record"))
        told = f"record `{tmp_path}/record` is too large: got `4` bytes, expected at most `3`"
        assert str(caught.value) == told

    def test_a_disk_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(descriptor: int, size: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        (tmp_path / "record").write_bytes(b"x")
        monkeypatch.setattr(os, "read", broken)
        with pytest.raises(AbsentError) as caught:
            list(read_lines(tmp_path / "record", 10, "record"))
        assert str(caught.value) == f"record `{tmp_path}/record` cannot be used: input/output error"

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(AbsentError) as caught:
            list(read_lines(tmp_path / "record", 10, "record"))
        assert str(caught.value) == f"record `{tmp_path}/record` is not there"


class TestWriteAtomic:
    @pytest.mark.parametrize("name", NAMES)
    def test_any_name_is_written_and_nothing_else(self, tmp_path: Path, name: str) -> None:
        write_atomic(tmp_path / name, b"first")
        write_atomic(tmp_path / name, b"second")
        assert (tmp_path / name).read_bytes() == b"second"
        assert names_in(tmp_path) == [name]

    def test_it_has_the_rights_of_a_new_file(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / "lock", b"")
        (tmp_path / "other").touch()
        assert (tmp_path / "lock").stat().st_mode == (tmp_path / "other").stat().st_mode

    def test_a_link_stays_and_what_it_leads_to_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_bytes(b"old")
        (tmp_path / "link").symlink_to("real")
        write_atomic(tmp_path / "link", b"new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == b"new"

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            write_atomic(tmp_path, b"new")
        assert str(caught.value) == f"`{tmp_path}` is a folder, expected a file to write"

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(AbsentError) as caught:
            write_atomic(tmp_path / "no/lock", b"new")
        assert str(caught.value) == f"folder `{tmp_path}/no` is not there"

    def test_a_full_disk_leaves_the_old_bytes_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lock").write_bytes(b"old")

        def full(descriptor: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(AbsentError) as caught:
            write_atomic(tmp_path / "lock", b"new")
        monkeypatch.undo()
        assert str(caught.value) == f"no space left to write file `{tmp_path}/lock`"
        assert caught.value.hint == "free some space and run again"
        assert (tmp_path / "lock").read_bytes() == b"old"
        assert names_in(tmp_path) == ["lock"]

    def test_a_write_that_the_kernel_cuts_short(self, tmp_path: Path, file_limit: int) -> None:
        with pytest.raises(AbsentError) as caught:
            write_atomic(tmp_path / "lock", bytes(file_limit + 1))
        assert str(caught.value) == f"file `{tmp_path}/lock` cannot be used: file too large"
        assert names_in(tmp_path) == []

    def test_an_interrupt_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(descriptor: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(tmp_path / "lock", b"new")
        assert names_in(tmp_path) == []

    def test_a_file_system_that_cannot_sync_a_folder_is_fine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[bool] = []

        def only_files(descriptor: int) -> None:
            synced.append(Path(f"/proc/self/fd/{descriptor}").is_dir())
            if synced[-1]:
                raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(os, "fsync", only_files)
        write_atomic(tmp_path / "lock", b"new")
        assert synced == [False, True]
        assert (tmp_path / "lock").read_bytes() == b"new"

    def test_a_folder_that_does_not_reach_the_disk_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(descriptor: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").is_dir():
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(AbsentError) as caught:
            write_atomic(tmp_path / "lock", b"new")
        assert str(caught.value) == f"folder `{tmp_path}` cannot be used: input/output error"


@pytest.mark.parametrize(
    "path, wanted",
    [
        ("models/q4.gguf", "models/q4.gguf"),
        ("mit Leerzeichen/ü/漢字/🦙", "mit Leerzeichen/ü/漢字/🦙"),
        ("two\nlines", "two↵lines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("turned \u202e round", "turned \\u202e round"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_a_path_is_shown_on_one_line(path: str, wanted: str) -> None:
    assert shown(path) == wanted


@pytest.mark.parametrize(
    "number, wanted",
    [
        (errno.EACCES, "spec `x` is not accessible: permission denied"),
        (errno.EROFS, "spec `x` is not accessible: read-only file system"),
        (errno.EDQUOT, "no quota left to write spec `x`"),
        (errno.EIO, "spec `x` cannot be used: input/output error"),
        (errno.ESTALE, "spec `x` cannot be used: stale file handle"),
    ],
)
def test_what_a_machine_refuses_is_absent(number: int, wanted: str) -> None:
    error = error_of(OSError(number, os.strerror(number)), Path("x"), "spec")
    assert str(error) == wanted
    assert error.exit_code == AbsentError.exit_code
