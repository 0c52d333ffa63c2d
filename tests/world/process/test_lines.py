"""Children that die, hang, flood, fork and are orphaned; each is a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.world.process import Ended, Flooded, Limits, LineChild, Silent

ROOT = Path(__file__).parents[3]
LONG_S = 30.0
"""A deadline that is only met when something is broken."""

Start = Callable[..., LineChild]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a child that runs the Python code; all are closed at the end."""
    children: list[LineChild] = []

    def run(code: str, limits: Limits | None = None, env: dict[str, str] | None = None) -> LineChild:
        argv = (sys.executable, "-I", "-S", "-c", code)
        child = LineChild(argv, env=env or {}, cwd=tmp_path, limits=limits, log=tmp_path / "log")
        children.append(child)
        return child

    yield run
    for child in children:
        child.close(grace_s=0)


def is_running(pid: int) -> bool:
    """Whether a process is there and not a zombie that waits for its parent."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def gone_in_time(pid: int) -> bool:
    until = time.monotonic() + LONG_S
    while is_running(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"


def test_a_line_goes_there_and_back(start: Start) -> None:
    child = start(ECHO)
    assert child.write_line("Grüße\r\u2028".encode(), LONG_S) is None
    assert child.write_line(b"", LONG_S) is None
    assert child.read_line(LONG_S, 100) == "Grüße\r\u2028".encode()
    assert child.read_line(LONG_S, 100) == b""


def test_a_newline_inside_a_line_is_a_bug_of_the_caller(start: Start) -> None:
    with pytest.raises(ValueError, match=r"^a line holds no newline$"):
        start(ECHO).write_line(b"a\nb", LONG_S)


def test_a_child_that_ends_by_itself_takes_no_more_lines(start: Start) -> None:
    child = start("print(input(), flush=True)")
    child.write_line(b"last", LONG_S)
    assert child.read_line(LONG_S, 100) == b"last"
    assert child.read_line(LONG_S, 100) == Ended(how="exit code 0")
    assert child.write_line(b"more", LONG_S) == Ended(how="exit code 0")
    assert child.close() == "exit code 0"
    assert child.write_line(b"more", LONG_S) == Ended(how="exit code 0")


def test_lines_sent_before_death_are_handed_out_first_and_a_torn_one_is_dropped(start: Start) -> None:
    child = start("import os; os.write(1, b'one\\ntwo\\nthr'); os._exit(3)")
    heard = [child.read_line(LONG_S, 100) for _ in range(4)]
    assert heard == [b"one", b"two", Ended(how="exit code 3"), Ended(how="exit code 3")]


def test_death_by_a_signal_is_named(start: Start) -> None:
    child = start("import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    assert child.read_line(LONG_S, 100) == Ended(how="signal SIGABRT")
    assert child.close() == "signal SIGABRT"


def test_a_signal_without_a_name_is_numbered(start: Start) -> None:
    child = start("import os; os.kill(os.getpid(), 40)")
    assert child.read_line(LONG_S, 100) == Ended(how="signal 40")


def test_a_child_that_hangs_is_silent_and_can_answer_later(start: Start) -> None:
    child = start("import sys; sys.stdin.readline(); print('late', flush=True); sys.stdin.readline()")
    assert child.read_line(0.05, 100) == Silent(after_s=0.05)
    child.write_line(b"go", LONG_S)
    assert child.read_line(LONG_S, 100) == b"late"


def test_a_line_may_be_as_long_as_allowed_and_no_longer(start: Start) -> None:
    child = start("print('x' * 100, flush=True); print('y' * 101, flush=True); input()")
    assert child.read_line(LONG_S, 100) == b"x" * 100
    assert child.read_line(LONG_S, 100) == Flooded(max_bytes=100)


def test_a_flood_without_a_newline_ends_in_bounded_memory(start: Start) -> None:
    child = start("import os\nwhile True: os.write(1, b'x' * 65536)")
    assert child.read_line(LONG_S, 1 << 20) == Flooded(max_bytes=1 << 20)
    assert child.close(grace_s=LONG_S) == "signal SIGTERM"


def test_a_child_that_does_not_read_cannot_stop_the_writer(start: Start) -> None:
    child = start("import time; time.sleep(1000)")
    assert child.write_line(b"x" * (1 << 20), 0.1) == Silent(after_s=0.1)
    assert child.write_line(b"next", LONG_S) == Silent(after_s=0.1)
    assert child.read_line(LONG_S, 100) == Silent(after_s=0.1)


def test_a_child_that_floods_while_it_is_written_to_does_not_stand_still(start: Start) -> None:
    said = 1 << 19
    child = start(
        f"import sys\nprint('x' * {said}, flush=True)\n"
        "print(len(sys.stdin.buffer.readline()), flush=True)\nsys.stdin.read()"
    )
    assert child.write_line(b"y" * said, LONG_S) is None
    assert child.read_line(LONG_S, said) == b"x" * said
    assert child.read_line(LONG_S, 100) == str(said + 1).encode()


def test_a_flood_while_writing_is_kept_only_up_to_a_bound(start: Start) -> None:
    child = start("import os\nwhile True: os.write(1, b'x' * 65536)")
    assert child.write_line(b"y" * (1 << 20), 1.0) == Silent(after_s=1.0)
    assert len(child._unread) < 2 << 20


def test_writing_to_a_child_that_closed_its_input(start: Start) -> None:
    child = start("import os; os.close(0); print('closed', flush=True); import time; time.sleep(1000)")
    assert child.read_line(LONG_S, 100) == b"closed"
    assert child.write_line(b"x", LONG_S) == Ended(how="closed its output")


def test_a_child_that_closed_its_output_but_lives(start: Start) -> None:
    child = start("import os, time; os.close(1); time.sleep(1000)")
    assert child.read_line(LONG_S, 100) == Ended(how="closed its output")


def test_a_child_that_dies_while_it_is_written_to(start: Start) -> None:
    child = start("import os; os.read(0, 10); os._exit(4)")
    assert child.write_line(b"x" * (1 << 22), LONG_S) == Ended(how="exit code 4")


@pytest.mark.parametrize(
    "given", [{}, {"A": "1", "B": "ü =\u2028"}, {"LC_CTYPE": "C"}, {"LC_ALL": "C", "LC_CTYPE": "x"}]
)
def test_the_environment_is_the_given_one_and_nothing_else(given: dict[str, str], tmp_path: Path) -> None:
    with LineChild(("/usr/bin/env",), env=given, cwd=tmp_path) as child:
        heard = [child.read_line(LONG_S, 100) for _ in given]
        assert child.read_line(LONG_S, 100) == Ended(how="exit code 0")
    assert sorted(map(str, heard)) == sorted(str(f"{name}={text}".encode()) for name, text in given.items())


def test_the_folder_is_the_given_one(start: Start, tmp_path: Path) -> None:
    assert start("import os; print(os.getcwd())").read_line(LONG_S, 1000) == str(tmp_path).encode()


def test_limits_hold_in_the_child(start: Start) -> None:
    tell = (
        "import resource as r; print([r.getrlimit(w) for w in "
        "(r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE)], flush=True)"
    )
    limits = Limits(address_space_bytes=1 << 29, cpu_s=9, file_bytes=0, open_files=20)
    expected = [(1 << 29, 1 << 29), (9, 9), (0, 0), (20, 20), (0, 0)]
    assert start(tell, limits=limits).read_line(LONG_S, 1000) == str(expected).encode()


def test_a_child_over_its_processor_time_is_killed(start: Start) -> None:
    child = start("while True: pass", limits=Limits(cpu_s=1))
    assert child.read_line(LONG_S, 100) == Ended(how="signal SIGKILL")


def test_stderr_goes_to_the_log(start: Start, tmp_path: Path) -> None:
    child = start("import sys; sys.stderr.write('what went wrong')")
    assert child.read_line(LONG_S, 100) == Ended(how="exit code 0")
    assert (tmp_path / "log").read_text() == "what went wrong"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "llama-server"
    with pytest.raises(AbsentError) as caught:
        LineChild((str(missing),), env={}, cwd=tmp_path)
    assert str(caught.value) == (
        f"got no program at `{missing}`, expected an executable file by its absolute path"
    )
    with pytest.raises(AbsentError) as caught:
        LineChild(("env",), env={}, cwd=tmp_path)
    assert str(caught.value) == "got no program at `env`, expected an executable file by its absolute path"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        LineChild(("/usr/bin/env",), env={}, cwd=tmp_path / "none")
    assert str(caught.value) == (
        f"got no folder at `{tmp_path / 'none'}`, expected one to run `/usr/bin/env` in"
    )


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        LineChild(("/usr/bin/env",), env={}, cwd=tmp_path, log=tmp_path)
    assert str(caught.value) == "cannot start `/usr/bin/env`: Is a directory"


def test_a_program_that_the_kernel_refuses(tmp_path: Path) -> None:
    script = tmp_path / "no-format"
    script.write_bytes(b"\x00\x01")
    script.chmod(0o700)
    with LineChild((str(script),), env={}, cwd=tmp_path, log=tmp_path / "log") as child:
        assert child.read_line(LONG_S, 100) == Ended(how="exit code 127")
    assert (tmp_path / "log").read_text() == f"cannot start `{script}`: Exec format error\n"


def test_close_ends_a_child_that_ignores_sigterm_and_all_it_started(start: Start) -> None:
    child = start(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\npid = os.fork()\n"
        "if pid: print(pid, flush=True)\ntime.sleep(1000)"
    )
    line = child.read_line(LONG_S, 100)
    assert isinstance(line, bytes)
    assert is_running(int(line))
    assert child.close(grace_s=0.05) == "signal SIGKILL"
    assert gone_in_time(int(line))
    assert not is_running(child.pid)
    assert child.close() == "signal SIGKILL"


def test_what_a_dead_child_left_behind_is_ended_too_and_does_not_hold_the_reader(start: Start) -> None:
    child = start(
        "import os, time\npid = os.fork()\nif pid: print(pid, flush=True); os._exit(0)\ntime.sleep(1000)"
    )
    line = child.read_line(LONG_S, 100)
    assert isinstance(line, bytes)
    assert child.read_line(LONG_S, 100) == Ended(how="exit code 0")
    assert is_running(int(line))
    assert child.close() == "exit code 0"
    assert gone_in_time(int(line))


def test_a_closed_child_has_ended_for_reader_and_writer(start: Start) -> None:
    child = start("print('unread', flush=True)\nimport time; time.sleep(1000)")
    assert child.read_line(LONG_S, 100) == b"unread"
    assert child.close(grace_s=LONG_S) == "signal SIGTERM"
    assert child.read_line(LONG_S, 100) == Ended(how="signal SIGTERM")
    assert child.write_line(b"x", LONG_S) == Ended(how="signal SIGTERM")


def test_leaving_the_block_closes_the_child(tmp_path: Path) -> None:
    with LineChild((sys.executable, "-I", "-c", ECHO), env={}, cwd=tmp_path) as child:
        assert is_running(child.pid)
    assert not is_running(child.pid)


def test_the_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent_code = (
        "import sys, time\nfrom pathlib import Path\nfrom qlock.world.process import LineChild\n"
        "code = 'import os, time; print(os.getpid(), flush=True); time.sleep(1000)'\n"
        "child = LineChild((sys.executable, '-I', '-c', code), env={}, cwd=Path.cwd())\n"
        "print(child.read_line(30, 100).decode(), flush=True)\ntime.sleep(1000)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        os.kill(parent.pid, signal.SIGKILL)
        assert gone_in_time(pid)
    finally:
        parent.kill()
        parent.communicate()
