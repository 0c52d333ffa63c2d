"""The batch script: each wish a line, each task by name, one command; and nothing that a value could smuggle in."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.sbatch import Single, SlurmSpec, index_ranges, refuse_odd_path, script, single_script
from qlock.errors import InputError
from tests.fakes.documents import an_array
from tests.strategies import strategy

FULL = SlurmSpec(
    partition="gpu",
    account="lab",
    gres="gpu:1",
    cpus=8,
    memory="16G",
    time="8:00:00",
    nice=100,
    at_once=4,
    extra=("--constraint=a100",),
    setup=("module load cuda/12.4",),
    container="apptainer exec --nv qlock.sif",
    qlock="qlock",
)


def test_every_wish_has_its_line() -> None:
    lines = script(FULL, an_array()).split("\n")
    assert [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=qlock-e4fba4aa",
        "#SBATCH --array=0,2%4",
        '#SBATCH --output="/runs/e4fba4aa/slurm/%A_%a.log"',
        "#SBATCH --partition=gpu",
        "#SBATCH --account=lab",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --mem=16G",
        "#SBATCH --time=8:00:00",
        "#SBATCH --nice=100",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --constraint=a100",
    ]
    assert lines[-2] == (
        "exec apptainer exec --nv qlock.sif qlock run '/work folder/locks/a.toml' "
        '--task "${tasks[$SLURM_ARRAY_TASK_ID]}"'
    )


def test_without_a_table_nothing_is_asked_for() -> None:
    lines = script(SlurmSpec(), an_array()).split("\n")
    assert [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=qlock-e4fba4aa",
        "#SBATCH --array=0,2",
        '#SBATCH --output="/runs/e4fba4aa/slurm/%A_%a.log"',
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
    ]
    assert lines[-2].startswith("exec python -m qlock run ")


@pytest.mark.parametrize(
    "key, value",
    [
        ("partition", "gpu\n#SBATCH --uid=0"),
        ("partition", "gpu --uid=0"),
        ("account", ""),
        ("memory", "16 G"),
        ("time", "soon"),
        ("cpus", 0),
        ("extra", ["-p gpu"]),
        ("extra", ["--x\n#SBATCH --uid=0"]),
        ("setup", ["true\nfalse"]),
        ("container", ""),
        ("nodes", 3),
        ("shard_items", 0),
        ("scratch", ""),
        ("scratch", "/a b"),
        ("scratch", "$(rm -rf /)"),
        ("scratch", '/a"; rm'),
        ("scratch", "-x"),
    ],
)
def test_what_is_no_value_is_refused(key: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({key: value}, SlurmSpec)


def test_bash_reads_the_script_and_finds_the_task() -> None:
    odd = msgspec.structs.replace(an_array(), tasks={0: "it's $(odd)@s", 7: "B@s"}, command=("say", "a b"))
    text = script(SlurmSpec(qlock="printf '%s\\n'", setup=("squeue() { echo; }",)), odd)
    for index, id_ in odd.tasks.items():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text.replace("exec printf", "printf")],
            env={"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_JOB_ID": "1", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split("\n") == ["say", "a b", "--task", id_, ""]


@pytest.mark.parametrize("scratch", ["/local/x", "$TMPDIR", "${TMPDIR:-/tmp}/$USER", "../here"])
def test_the_shell_of_the_node_says_where_scratch_is(scratch: str) -> None:
    text = script(
        SlurmSpec(scratch=scratch, qlock="printf '%s\\n'", setup=("squeue() { echo; }",)), an_array()
    )
    for environment in ({"TMPDIR": "/local/a b", "USER": "me"}, {}):
        done = subprocess.run(
            ["bash", "-c", text.replace("exec printf", "printf")],
            env={"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "1", "PATH": "/usr/bin:/bin"}
            | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        _, _, after = done.stdout.partition("--scratch\n")
        wanted = scratch.replace("${TMPDIR:-/tmp}", environment.get("TMPDIR", "/tmp"))
        for name in ("TMPDIR", "USER"):
            wanted = wanted.replace(f"${name}", environment.get(name, ""))
        assert after.split("\n")[:2] == [wanted, "--task"]


@pytest.mark.parametrize(
    "says, end",
    [
        ("2026-01-01T00:00:10", "1767225610"),
        ("", "none"),
        ("N/A", "none"),
        ("NONE", "none"),
        ("Unknown", "none"),
    ],
)
def test_the_end_of_the_job_is_asked_for_where_slurm_does_not_say_it(says: str, end: str) -> None:
    text = script(
        SlurmSpec(qlock='echo "${SLURM_JOB_END_TIME:-none}";', setup=(f"squeue() {{ echo '{says}'; }}",)),
        an_array(),
    )
    environment = {
        "SLURM_ARRAY_TASK_ID": "0",
        "SLURM_ARRAY_JOB_ID": "1",
        "PATH": "/usr/bin:/bin",
        "TZ": "UTC",
    }
    for said, wanted in (({}, end), ({"SLURM_JOB_END_TIME": "77"}, "77")):
        done = subprocess.run(
            ["bash", "-c", text.replace("exec echo", "echo").replace("; run ", "; exit; run ")],
            env=environment | said,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{wanted}\n"


@pytest.mark.parametrize(
    "files, said, code",
    [
        ({"a": "1", "b": "1"}, "asked\n", 0),
        ({"a": "1"}, "asked\n", 0),
        (
            {"a": "1", "b": "2"},
            (
                "error: refused: the lock changed since this task was queued\n"
                "hint: queue the tasks of the new lock with `qlock submit`\n"
            ),
            3,
        ),
    ],
    ids=["as queued", "gone", "changed"],
)
def test_a_task_of_a_lock_that_changed_is_not_done(
    tmp_path: Path, files: dict[str, str], said: str, code: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    array = msgspec.structs.replace(an_array(), lock=str(tmp_path / "a"), kept_lock=str(tmp_path / "b"))
    spec = SlurmSpec(setup=("set -euo pipefail",), qlock="echo asked;: ")
    text = script(spec, array).replace("exec echo", "echo")
    done = subprocess.run(
        ["bash", "-c", text],
        env={"PATH": "/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_END_TIME": "9"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert (done.stdout.decode(), done.returncode) == (said, code)


@given(strategy(SlurmSpec))
def test_a_line_of_the_script_is_an_option_only_when_it_was_asked_for(spec: SlurmSpec) -> None:
    lines = script(spec, an_array()).split("\n")
    options = [line for line in lines if line.startswith("#SBATCH")]
    single = (spec.partition, spec.account, spec.gres, spec.cpus, spec.memory, spec.time, spec.nice)
    assert len(options) == 5 + sum(value is not UNSET for value in single) + len(spec.extra)


@given(st.sets(st.integers(0, 60)))
def test_ranges_name_every_index_once(indices: set[int]) -> None:
    found: list[int] = []
    for part in filter(None, index_ranges(tuple(indices)).split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    assert found == sorted(indices)


def test_words_of_the_command_are_quoted() -> None:
    line = script(SlurmSpec(), an_array()).split("\n")[-2]
    assert shlex.split(line)[:6] == ["exec", "python", "-m", "qlock", "run", "/work folder/locks/a.toml"]


SINGLE = Single(
    name="qlock-resolve-x",
    title="Written by qlock.",
    stem="/runs/resolve/x/1",
    command=("resolve", "a b.toml"),
    program=("python", "-m", "qlock"),
)


def test_one_command_keeps_what_it_said_and_how_it_ended(tmp_path: Path) -> None:
    single = msgspec.structs.replace(
        SINGLE, stem=str(tmp_path / "1"), program=("sh", "-c", 'echo "$1"; echo x >&2; exit 7')
    )
    text = single_script(SlurmSpec(setup=("echo loaded",)), single)
    done = subprocess.run(["bash", "-c", text], capture_output=True, check=False)
    # What is set up says so elsewhere: the command's answer is its own.
    assert (done.returncode, done.stdout, done.stderr) == (7, b"loaded\n", b"")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "1.code": "7\n",
        "1.out": "a b.toml\n",
        "1.err": "x\n",
    }


def test_one_command_has_the_wishes_of_the_table() -> None:
    lines = single_script(FULL, SINGLE).split("\n")
    assert [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=qlock-resolve-x",
        "#SBATCH --array=0",
        '#SBATCH --output="/runs/resolve/x/1.log"',
        "#SBATCH --partition=gpu",
        "#SBATCH --account=lab",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --mem=16G",
        "#SBATCH --time=8:00:00",
        "#SBATCH --nice=100",
        "#SBATCH --no-requeue",
        "#SBATCH --constraint=a100",
    ]
    assert "apptainer exec --nv qlock.sif qlock resolve 'a b.toml' \\" in lines
    assert "module load cuda/12.4" in lines


@pytest.mark.parametrize("path", ['/a"b', "/50%", "/a\\b", "/a\nb", "/$HOME", "/`id`"])
def test_a_path_that_a_script_would_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        refuse_odd_path("/fine and well", path)
    assert str(caught.value) == f"the path `{path}` cannot stand in a batch script"
