"""Who holds a folder: the living, the dead, other machines, and many at once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qlock.errors import AbsentError
from qlock.world import folder as module
from qlock.world.folder import hold
from qlock.world.process import Holder, this_process
from qlock.world.process import holder as holder_module

ROOT = Path(__file__).parents[2]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left_behind(folder: Path, holder: Holder, number: int = 1) -> Path:
    """As if ``holder`` held the folder."""
    path = folder / f"held.{number}.json"
    path.write_bytes(msgspec.json.encode(holder))
    return path


def ended_process() -> int:
    """The number of a process that has just ended."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    child.wait()
    return child.pid


def changed(**fields: object) -> Holder:
    return msgspec.structs.replace(this_process(), **fields)


def taken_over(folder: Path) -> bool:
    with hold(folder):
        (name,) = names_in(folder)
        return msgspec.json.decode((folder / name).read_bytes(), type=Holder) == this_process()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with hold(tmp_path):
        assert names_in(tmp_path) == ["held.1.json"]
    assert names_in(tmp_path) == []


def test_an_error_inside_lets_the_folder_go(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), hold(tmp_path):
        raise RuntimeError
    assert names_in(tmp_path) == []


def test_a_second_one_is_refused_while_the_first_is_in(tmp_path: Path) -> None:
    with hold(tmp_path):
        with pytest.raises(AbsentError) as caught, hold(tmp_path):
            pass
        assert names_in(tmp_path) == ["held.1.json"]
    assert (
        str(caught.value)
        == f"folder `{tmp_path}` is held by process `{os.getpid()}` on host `{os.uname().nodename}`"
    )
    assert caught.value.hint == "wait until it has ended"
    assert taken_over(tmp_path)


def test_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\nfrom qlock.world.folder import hold\n"
        "with hold(pathlib.Path(sys.argv[1])):\n print('in', flush=True)\n time.sleep(600)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in\n"
        with pytest.raises(AbsentError, match=f"is held by process `{child.pid}`"), hold(tmp_path):
            pass
        child.send_signal(signal.SIGKILL)
        # Not waited for yet: a zombie holds nothing either.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert names_in(tmp_path) == ["held.1.json"]
        assert taken_over(tmp_path)


def test_a_process_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    left_behind(tmp_path, changed(pid=ended_process()))
    assert taken_over(tmp_path)


def test_a_later_process_of_the_same_number_does_not_count(tmp_path: Path) -> None:
    left_behind(tmp_path, changed(started_ticks=this_process().started_ticks + 1))
    assert taken_over(tmp_path)


def test_a_boot_is_not_outlived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder_module, "_machine_id", lambda: "0123456789abcdef")
    left_behind(tmp_path, changed(boot_id="another"))
    assert taken_over(tmp_path)


def test_several_that_are_gone_are_tidied_up(tmp_path: Path) -> None:
    pid = ended_process()
    for number in (2, 3, 7):
        left_behind(tmp_path, changed(pid=pid), number)
    with hold(tmp_path):
        assert names_in(tmp_path) == ["held.8.json"]


def test_a_process_that_is_hidden_from_this_user_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With `hidepid=2`, /proc shows a user nobody else's processes.
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        left_behind(tmp_path, changed(pid=child.pid))
        real = Path.exists
        monkeypatch.setattr(holder_module, "_started_ticks", lambda pid: None if pid == child.pid else 1)
        monkeypatch.setattr(Path, "exists", lambda path: path.parent != Path("/proc") and real(path))
        with pytest.raises(AbsentError, match=f"is held by process `{child.pid}`"), hold(tmp_path):
            pass
        child.communicate(b"\n")
        assert taken_over(tmp_path)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"boot_id": "another", "host_name": "node-7"},
        {"boot_id": "another", "machine_id": "another"},
        {"pid_namespace": "pid:[1]", "host_name": "node-7"},
    ],
)
def test_what_cannot_be_seen_from_here_is_not_taken_over(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    holder = changed(pid=ended_process(), **elsewhere)
    path = left_behind(tmp_path, holder)
    with pytest.raises(AbsentError) as caught, hold(tmp_path):
        pass
    assert (
        str(caught.value)
        == f"folder `{tmp_path}` is held by process `{holder.pid}` on host `{holder.host_name}`"
    )
    assert caught.value.hint == f"when you are sure that no qlock process uses the folder, remove `{path}`"
    assert names_in(tmp_path) == ["held.1.json"]


def test_a_machine_without_an_id_is_told_by_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_module, "_machine_id", lambda: "")
    left_behind(tmp_path, changed(boot_id="another"))
    with pytest.raises(AbsentError, match="is held by process"), hold(tmp_path):
        pass


@pytest.mark.parametrize("data", [b"", b"\0\0", b"{}", b"\xff"], ids=repr)
def test_a_file_that_does_not_say_who(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BEING_WRITTEN_S", 0.02)
    path = tmp_path / "held.1.json"
    path.write_bytes(data)
    with pytest.raises(AbsentError) as caught, hold(tmp_path):
        pass
    assert str(caught.value) == f"folder `{tmp_path}` is held, and `held.1.json` does not say by whom"
    assert caught.value.hint == f"when you are sure that no qlock process uses the folder, remove `{path}`"


def test_other_files_do_not_matter(tmp_path: Path) -> None:
    for name in ("held.json", "held.0.json", "held.1.json.bak", "held.x.json"):
        (tmp_path / name).touch()
    with hold(tmp_path):
        assert "held.1.json" in names_in(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught, hold(tmp_path / "no"):
        pass
    assert str(caught.value) == f"folder `{tmp_path}/no` is not there"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AbsentError) as caught, hold(tmp_path):
        pass
    monkeypatch.undo()
    assert str(caught.value) == f"no space left to write file `{tmp_path}/held.1.json`"
    assert names_in(tmp_path) == []


def test_one_who_is_always_late_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_make", lambda path, mine: False)
    with pytest.raises(AbsentError) as caught, hold(tmp_path):
        pass
    assert str(caught.value) == f"folder `{tmp_path}` changes hands too quickly to be taken"
    assert caught.value.hint == "run again in a moment"


def test_somebody_elses_file_is_not_removed(tmp_path: Path) -> None:
    with hold(tmp_path):
        path = left_behind(tmp_path, changed(pid=1, host_name="node-7"))
    assert path.exists()


def test_one_who_comes_in_with_another_number_makes_both_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._make
    rival = changed(host_name="node-7")

    def with_rival(path: Path, mine: Holder) -> bool:
        made = real(path, mine)
        left_behind(tmp_path, rival, 9)
        return made

    monkeypatch.setattr(module, "_make", with_rival)
    with pytest.raises(AbsentError) as caught, hold(tmp_path):
        pass
    assert str(caught.value) == (
        f"folder `{tmp_path}` is held by process `{rival.pid}` on host `{rival.host_name}`"
    )
    assert names_in(tmp_path) == ["held.9.json"]


def test_many_at_once_are_never_in_together(tmp_path: Path) -> None:
    """Each writes a line when it comes in and when it leaves; a killed one leaves its file to be taken over."""
    code = (
        "import os, sys, pathlib, random, signal\n"
        "from qlock.errors import AbsentError\nfrom qlock.world.folder import hold\n"
        "place = pathlib.Path(sys.argv[1]); log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "say = lambda word: os.write(log, f'{word} {os.getpid()}\\n'.encode())\n"
        "for turn in range(40):\n"
        " try:\n"
        "  with hold(place):\n"
        "   say('in')\n"
        "   if random.random() < 0.04: say('out'); os.kill(os.getpid(), signal.SIGKILL)\n"
        "   say('out')\n"
        " except AbsentError: pass\n"
    )
    place = tmp_path / "run"
    place.mkdir()
    argv = [sys.executable, "-c", code, str(place), str(tmp_path / "log")]
    children = [subprocess.Popen(argv, cwd=ROOT) for _ in range(8)]
    for child in children:
        assert child.wait() in (0, -signal.SIGKILL)
    words = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len(words) >= 8
    assert all(
        came[0] == "in" and left == ["out", came[1]]
        for came, left in zip(words[::2], words[1::2], strict=True)
    )
    assert taken_over(place)


def test_what_ended_jobs_left_is_released_and_nothing_else(tmp_path: Path) -> None:
    mine = left_behind(tmp_path, changed(slurm_job="7_0", host_name="far", boot_id="x"))
    other = left_behind(tmp_path, changed(slurm_job="8_0", host_name="far", boot_id="x"), 2)
    none = left_behind(tmp_path, changed(host_name="far", boot_id="x"), 3)
    module.release(tmp_path, {"7_0"})
    assert [path.exists() for path in (mine, other, none)] == [False, True, True]
    module.release(tmp_path / "missing", {"7_0"})


def test_a_job_that_slurm_begins_again_elsewhere_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = {"slurm_job": "7_3", "host_name": "far", "boot_id": "x", "machine_id": "y"}
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    left_behind(tmp_path, changed(**far))
    with pytest.raises(AbsentError), hold(tmp_path):  # two processes of one start are no successors
        pass
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert taken_over(tmp_path)
    left_behind(tmp_path, changed(**(far | {"slurm_job": "7_4"})))
    with pytest.raises(AbsentError), hold(tmp_path):
        pass
