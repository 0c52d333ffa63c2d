"""`qlock demo`: what it shows, and that it ends well only when each step did what it should."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import qlock.cli.main
from qlock.cli import demo as module
from qlock.cli.shown import Means, Talk, real_means
from qlock.engines.llama_cpp_python import quantize
from qlock.errors import ExitCode
from qlock.flows import demo
from tests.cli.conftest import Said, Type
from tests.fakes.project import Project, tiny_gguf
from tests.fakes.world import ScriptedWheels

DEVICE = "cpu-amd-1a-02"
Verbs = Callable[[Sequence[str], Means], int]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project's world, with a tiny model in a package and a quantizer that writes other tiny models."""
    project = Project(tmp_path)
    project.change_world(wheels=ScriptedWheels({demo.SOURCE: project.write("package.gguf", tiny_gguf(9))}))

    def fake(source: Path, target: Path, *, file_type: str, threads: int) -> None:
        target.write_bytes(tiny_gguf(sum(file_type.encode()) % 256))

    monkeypatch.setattr(quantize, "quantize", fake)
    return project


def instead(monkeypatch: pytest.MonkeyPatch, verbs: Callable[[Sequence[str], Verbs, Means], int]) -> None:
    """Let a test stand between the demo and the verbs that it runs."""
    real = qlock.cli.main.exit_code

    def exit_code(words: Sequence[str], means: Means) -> int:
        return real(words, means) if words[0] == "demo" else verbs(words, real, means)

    monkeypatch.setattr(qlock.cli.main, "exit_code", exit_code)


def typed_commands(said: Said) -> list[str]:
    return [line.partition("$ ")[2] for line in said.talk if line.startswith("demo$ ")]


def test_every_step_does_what_it_should(project: Project, typed: Type) -> None:
    said = typed("demo")

    assert said.code == 0, said.err
    run = demo.run_path(project.world, project.path / "demo").name
    lock = f"locks/demo@{DEVICE}.toml"
    commands = typed_commands(said)
    first_run = commands[3].partition("/")[2].partition("/")[2].partition(":")[0]
    third = (project.path / "demo/models/Q4_K_M.gguf").read_bytes()
    middle = len(third) // 2
    write = f"printf '\\x{{:02x}}' | dd of=models/Q4_K_M.gguf bs=1 seek={middle} conv=notrunc status=none"
    assert commands == [
        "cat specs/demo.toml",
        "qlock resolve specs/demo.toml",
        f"qlock run {lock}",
        f"qlock diff runs/demo@{DEVICE}/{first_run}:Q2_K@f16kv",
        "tail -n 3 specs/demo.toml",
        "qlock resolve specs/demo.toml",
        f"qlock run {lock}",
        write.format(third[middle] ^ 1),
        f"qlock run {lock}",
        write.format(third[middle]),
        f"qlock run {lock}",
    ]
    assert first_run != run
    assert said.out.endswith("\ndemo\n")
    assert "ok: 1 point measured (Q4_K_M@f16kv), 3 taken over" in said.talk
    assert "error: refused: this is not what is locked" in said.talk
    assert "ok: refused, as it should be; now the byte is put back" in said.talk
    assert "ok: every step did what it should, the refusal too" in said.talk
    assert any("made from Q4_1" in line for line in said.talk)


def test_what_to_try_next_begins_with_the_way_there(project: Project, typed: Type) -> None:
    talk = typed("demo", "--folder", "my demo").talk
    after = talk[talk.index("What to try next:") + 1 :]
    assert after[0] == "  cd 'my demo'"
    commands = [line for line in after if line.startswith("  qlock ")]
    assert [line.split()[1] for line in commands] == ["diff", "verify", "run", "run"]


def test_qlock_is_put_on_the_path_where_its_environment_can_be_activated(tmp_path: Path) -> None:
    python = tmp_path / "a b" / "python"
    assert module._way_in("demo", python) == ("cd demo",)
    python.parent.mkdir()
    python.with_name("activate").touch()
    assert module._way_in("demo", python) == ("cd demo", f". '{tmp_path}/a b/activate'")


def test_it_may_be_run_again(project: Project, typed: Type) -> None:
    assert typed("demo", "--folder", "again").code == 0
    said = typed("demo", "--folder", "again")
    assert said.code == 0
    assert "note: starting over in `again`: what an earlier demo made is removed" in said.talk
    assert "ok: 1 point measured (Q4_K_M@f16kv), 3 taken over" in said.talk


def test_a_folder_of_others_is_refused(project: Project, typed: Type) -> None:
    project.write("mine/thesis.tex", "mine")

    said = typed("demo", "--folder", "mine")

    assert (said.code, said.out) == (2, "")
    assert said.talk[-2:] == [
        f"error: got the folder `{project.path / 'mine'}`, which holds files that the demo did not make",
        "hint: name an empty or new folder with --folder",
    ]


def test_two_demos_do_not_share_a_folder(project: Project, typed: Type) -> None:
    folder = project.path / "demo"
    demo.open_folder(folder)
    kept = project.write("demo/specs/demo.toml", "of the other demo")

    with project.world.folders.hold(folder):
        said = typed("demo")

    assert (said.code, said.out) == (8, "")
    assert said.talk[0].startswith(f"error: folder `{folder}` is held by process `")
    assert kept.read_text() == "of the other demo"


@pytest.mark.parametrize(("verb", "code"), [("resolve", 7), ("run", 5), ("diff", 4), ("run", 130)])
def test_a_verb_that_fails_ends_the_demo_with_its_code(
    project: Project, typed: Type, monkeypatch: pytest.MonkeyPatch, verb: str, code: int
) -> None:
    instead(monkeypatch, lambda words, real, means: code if words[0] == verb else real(words, means))

    said = typed("demo")

    assert said.code == code
    assert said.talk[-1] == (f"error: the demo stops here: `qlock {verb}` gave exit code {code}, expected 0")


def test_a_changed_byte_that_nobody_notices_ends_the_demo(
    project: Project, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def lenient(words: Sequence[str], real: Verbs, means: Means) -> int:
        if words[0] != "run":
            return real(words, means)
        runs.append(words[1])
        return ExitCode.YES if len(runs) == 3 else real(words, means)

    instead(monkeypatch, lenient)
    before = tiny_gguf(sum(b"Q4_K_M") % 256)

    said = typed("demo")

    assert said.code == 1
    assert said.talk[-1] == "error: the demo stops here: `qlock run` gave exit code 0, expected 3"
    assert (project.path / "demo/models/Q4_K_M.gguf").read_bytes() == before


def test_a_run_that_takes_nothing_over_ends_the_demo(
    project: Project, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def forgetful(words: Sequence[str], real: Verbs, means: Means) -> int:
        if words[0] == "run":
            runs.append(words[1])
            if len(runs) == 2:
                (project.path / f"demo/runs/demo@{DEVICE}").rename(project.path / "demo/elsewhere")
        return real(words, means)

    instead(monkeypatch, forgetful)

    said = typed("demo")

    assert said.code == 1
    assert said.talk[-1] == (
        "error: the demo stops here: 4 points measured (F16@f16kv, Q2_K@f16kv, Q4_K_M@f16kv, Q8_0@f16kv), "
        "0 taken over, expected one measured and the others taken over"
    )


@pytest.mark.live
@pytest.mark.slow
def test_the_real_demo_on_the_real_model(
    smollm2_q4_1: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    stream = io.StringIO()
    folder = tmp_path / "demo"

    code = qlock.cli.main.exit_code(
        ["demo", "--folder", str(folder)], real_means()._replace(talk=Talk(stream, environment={}))
    )

    assert code == 0, stream.getvalue()
    assert capsysbinary.readouterr().out.endswith(f"\n{folder}\n".encode())
