"""Processes that hold something: named, read again, and told from those that are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qlock.world.process import holder_in, is_gone, this_process


def test_this_process_is_named_and_is_not_gone(tmp_path: Path) -> None:
    mine = this_process()
    assert mine.pid == os.getpid()
    path = tmp_path / "holder"
    path.write_bytes(msgspec.json.encode(mine))
    assert holder_in(path) == mine
    assert not is_gone(mine, mine)


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"\xff", b"x" * 5000], ids=lambda data: repr(data[:4]))
def test_a_file_that_names_none_is_not_judged(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "holder"
    assert holder_in(path) is None
    path.write_bytes(data)
    assert holder_in(path) is None
    assert not is_gone(holder_in(path), this_process())


def test_a_process_that_has_ended_is_gone_and_so_is_an_earlier_one_of_this_number() -> None:
    mine = this_process()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as child:
        pid = child.pid
    assert is_gone(msgspec.structs.replace(mine, pid=pid), mine)
    assert is_gone(msgspec.structs.replace(mine, started_ticks=mine.started_ticks - 1), mine)


def test_what_cannot_be_seen_from_here_is_not_gone() -> None:
    mine = this_process()
    other = msgspec.structs.replace(mine, started_ticks=0, pid_namespace="pid:[1]")
    assert not is_gone(other, mine)
    assert not is_gone(msgspec.structs.replace(mine, boot_id="another", host_name="node-7"), mine)
