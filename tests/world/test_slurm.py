"""Slurm's tools: how they are called, and what each line of theirs means. Stand-ins on the PATH print canned output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import AbsentError
from qlock.world.interface import Missing, SlurmTask, UndoneError
from qlock.world.slurm import RealSlurm, accounted, left_s, queued

ENDED = Missing(why="it has ended")
Tool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """Puts a shell script on the PATH; `said` keeps how it was called."""

    def put(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/said\n{body}\n')
        path.chmod(0o755)

    return put


def slurm(tmp_path: Path, **environment: str) -> RealSlurm:
    return RealSlurm({"PATH": f"{tmp_path}:/usr/bin:/bin", **environment})


def said(tmp_path: Path) -> list[str]:
    return (tmp_path / "said").read_text().split("\n")[:-1]


@pytest.mark.parametrize("answer, job", [("123", "123"), ("123;north", "123")])
def test_a_script_becomes_a_job(tmp_path: Path, tool: Tool, answer: str, job: str) -> None:
    tool("sbatch", f"echo '{answer}'")
    assert slurm(tmp_path).submit(Path("/x/1.sbatch")) == job
    assert said(tmp_path) == ["--parsable", "/x/1.sbatch"]


def test_an_answer_that_is_no_number_is_refused(tmp_path: Path, tool: Tool) -> None:
    tool("sbatch", "echo Submitted")
    with pytest.raises(AbsentError) as caught:
        slurm(tmp_path).submit(Path("/x"))
    assert str(caught.value) == "sbatch: got `Submitted`, expected the number of a job"


def test_what_slurm_does_not_take_is_said_in_its_words(tmp_path: Path, tool: Tool) -> None:
    tool("sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(AbsentError) as caught:
        slurm(tmp_path).submit(Path("/x"))
    assert str(caught.value) == "sbatch: invalid partition specified: gpu"


NOT_HERE = "type it where Slurm's tools work, such as on the cluster's login node"


@pytest.mark.parametrize(
    "said, kind",
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", UndoneError),
        (
            "sbatch: warning: x\nsbatch: error: Batch job submission failed: Socket timed out on send/recv",
            AbsentError,
        ),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", AbsentError),
    ],
)
def test_a_job_that_may_have_been_taken_is_told_from_one_that_was_not(
    tmp_path: Path, tool: Tool, said: str, kind: type[AbsentError]
) -> None:
    tool("sbatch", f"cat >&2 <<'END'\n{said}\nEND\nexit 1")
    with pytest.raises(AbsentError) as caught:
        slurm(tmp_path).submit(tmp_path / "1.sbatch")
    assert type(caught.value) is kind


def test_where_no_slurm_is_installed_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        RealSlurm({"PATH": str(tmp_path)}).queue()
    assert str(caught.value) == "Slurm is not here: `squeue` is not on the PATH"
    assert caught.value.hint == NOT_HERE


@pytest.mark.parametrize(
    "last", ["Could not establish a configuration source", "Unable to process configuration file"]
)
def test_where_slurm_belongs_to_no_cluster_its_last_word_is_said(
    tmp_path: Path, tool: Tool, last: str
) -> None:
    first = "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host"
    tool("sbatch", f"echo '{first}' >&2; echo 'sbatch: fatal: {last}' >&2; exit 1")
    with pytest.raises(UndoneError) as caught:
        slurm(tmp_path).submit(Path("/x"))
    assert str(caught.value) == f"Slurm is not here: sbatch: {last}"
    assert caught.value.hint == NOT_HERE


def test_the_queue_is_read_line_by_line(tmp_path: Path, tool: Tool) -> None:
    tool(
        "squeue",
        "printf '7|0|RUNNING|1:30|n1|None\\n7|1|PENDING|10:00||Resources\\n9|N/A|RUNNING|1:00|n2|None\\n'",
    )
    assert slurm(tmp_path).queue() == (
        SlurmTask(job="7", index=0, state="RUNNING", reason="", node="n1", left_s=90),
        SlurmTask(job="7", index=1, state="PENDING", reason="Resources", node="", left_s=600),
    )


def test_wishes_of_the_user_for_the_tools_do_not_reach_them(tmp_path: Path, tool: Tool) -> None:
    tool("squeue", f"env > {tmp_path}/env")
    slurm(tmp_path, SQUEUE_FORMAT="%i", SACCT_FORMAT="x", SLURM_CONF="/etc/s.conf").queue()
    names = [line.partition("=")[0] for line in (tmp_path / "env").read_text().split("\n")]
    assert "SLURM_CONF" in names
    assert "SQUEUE_FORMAT" not in names
    assert "SACCT_FORMAT" not in names


def test_accounts_tell_how_elements_ended(tmp_path: Path, tool: Tool) -> None:
    lines = [
        "7_0|COMPLETED|0:0|n1",
        "7_1|FAILED|5:0|n1",
        "7_2|CANCELLED by 1000|0:15|n2",
        "7_3|TIMEOUT|0:0|n2",
        "7_[4,6-7%2]|CANCELLED by 1000|0:0|None assigned",
        "7_[8-9,...]|PENDING|0:0|None assigned",
        "8|COMPLETED|0:0|n1",
    ]
    tool("sacct", "".join(f"echo '{line}'\n" for line in lines))
    assert slurm(tmp_path).accounts(["7", "8"]) == (
        SlurmTask(job="7", index=0, state="COMPLETED", reason="", node="n1", left_s=ENDED),
        SlurmTask(job="7", index=1, state="FAILED", reason="exit code 5", node="n1", left_s=ENDED),
        SlurmTask(job="7", index=2, state="CANCELLED", reason="by 1000", node="n2", left_s=ENDED),
        SlurmTask(job="7", index=3, state="TIMEOUT", reason="", node="n2", left_s=ENDED),
        *(
            SlurmTask(job="7", index=index, state="CANCELLED", reason="by 1000", node="", left_s=ENDED)
            for index in (4, 6, 7)
        ),
    )
    # No option that some version in use does not know: 22.05 has no `--array`.
    assert said(tmp_path) == [
        "--noheader",
        "--parsable2",
        "--allocations",
        "--format=JobID,State,ExitCode,NodeList",
        "--jobs=7,8",
    ]


def test_a_signal_is_told_as_one() -> None:
    assert accounted("7_0|FAILED|0:9|n1") == (
        SlurmTask(job="7", index=0, state="FAILED", reason="signal 9", node="n1", left_s=ENDED),
    )


def test_where_no_accounts_are_kept_they_are_missing(tmp_path: Path, tool: Tool) -> None:
    tool("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert slurm(tmp_path).accounts(["7"]) == Missing(why="sacct: Slurm accounting storage is disabled")


@pytest.mark.parametrize(
    "body, limit",
    [
        ("printf 'LogTimeFormat = x\\nMaxArraySize            = 1001\\nMaxBatch = 2\\n'", 1001),
        ("echo 'MaxJobCount = 7'", Missing(why="scontrol tells no `MaxArraySize`")),
        (
            "echo 'slurm_load_ctl_conf error: no answer' >&2; exit 1",
            Missing(why="scontrol: slurm_load_ctl_conf error: no answer"),
        ),
    ],
)
def test_how_long_an_array_may_be(tmp_path: Path, tool: Tool, body: str, limit: int | Missing) -> None:
    tool("scontrol", body)
    assert slurm(tmp_path).array_limit() == limit
    assert said(tmp_path) == ["show", "config"]


def test_jobs_are_cancelled_in_parts(tmp_path: Path, tool: Tool) -> None:
    tool("scancel", "")
    slurm(tmp_path).cancel([str(number) for number in range(450)])
    words = said(tmp_path)
    assert words.count("--quiet") == 3
    assert [word for word in words if word != "--quiet"] == [str(number) for number in range(450)]


@pytest.mark.parametrize(
    "text, seconds",
    [("1-02:03:04", 93784), ("2:03:04", 7384), ("03:04", 184), ("0:00", 0)],
)
def test_times_are_seconds(text: str, seconds: int) -> None:
    assert left_s(text) == seconds


@pytest.mark.parametrize("text", ["UNLIMITED", "INVALID", "NOT_SET", ""])
def test_what_is_no_time_is_missing(text: str) -> None:
    assert left_s(text) == Missing(why=f"Slurm says `{text}`")


@given(st.text(max_size=60))
def test_any_line_is_an_element_or_nothing(line: str) -> None:
    assert queued(line) is None or "|" in line
    assert accounted(line) == () or "|" in line
