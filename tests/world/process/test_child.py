"""What every child has in common, whatever it is spoken to with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.world.process import Limits, LineChild, ServerChild
from qlock.world.process.child import Child

KINDS = (LineChild, ServerChild)


@pytest.mark.parametrize("kind", KINDS)
def test_it_leads_a_group_of_its_own_within_its_limits(kind: type[Child], tmp_path: Path) -> None:
    code = (
        "import os, resource, sys; sys.stderr.write(str((os.getpgid(0) == os.getsid(0) == os.getpid(),"
        " resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.getcwd(), sorted(os.environ))))"
    )
    log = tmp_path / "log"
    argv = (sys.executable, "-I", "-S", "-c", code)
    with kind(argv, env={"LC_ALL": "C"}, cwd=tmp_path, limits=Limits(open_files=99), log=log) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert log.read_text() == str((True, 99, str(tmp_path), ["LC_ALL"]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_named_without_its_folder_is_refused(kind: type[Child], tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        kind(("true",), env={}, cwd=tmp_path, log=tmp_path / "log")
    assert (
        caught.value.message == "got no program at `true`, expected an executable file by its absolute path"
    )


def test_a_child_of_no_kind_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        Child((sys.executable,), env={}, cwd=tmp_path)
