"""The one way out: every error becomes a line for people and an exit code."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click
import pytest

import qlock.cli
from qlock import __version__
from qlock.cli.main import exit_code
from qlock.cli.shown import Answer, Means, Talk
from qlock.cli.signals import TerminatedExit
from qlock.core.verify import Finding
from qlock.errors import (
    AbsentError,
    EngineError,
    ExitCode,
    IncompleteError,
    InputError,
    InvalidError,
    QlockError,
    RefusedError,
    UsageError,
)
from qlock.flows.refusal import FindingsError

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "numpy",
    "scipy",
    "huggingface_hub",
    "jinja2",
    "rich",
    "gguf",
    "llama_cpp",
    "jsonschema",
    "matplotlib",
    "pynvml",
    "httpx",
    "re2",
    "blake3",
    "psutil",
)


def nowhere() -> NoReturn:
    pytest.fail("a world was built that nobody needs")


def means(stream: io.StringIO) -> Means:
    def opener(kind: str) -> NoReturn:
        pytest.fail(f"an engine of kind {kind} was opened")

    return Means(world=nowhere, opener=opener, talk=Talk(stream, environment={}))


def typed(*words: str) -> tuple[int, str]:
    stream = io.StringIO()
    return exit_code(words, means(stream)), stream.getvalue()


Verb = Callable[[], object]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Verb], None]:
    """Puts a verb called `probe` beside the real ones."""

    def put(does: Verb) -> None:
        module = types.ModuleType("qlock.cli.probe")

        @click.command("probe")
        @click.option("--many", type=int)
        @click.pass_obj
        def command(means: Means, /, *, many: int | None) -> object:
            return does()

        vars(module)["verb"] = command
        monkeypatch.setitem(sys.modules, "qlock.cli.probe", module)
        monkeypatch.setattr("qlock.cli.main._files", lambda: ["probe"])

    return put


def raising(error: BaseException) -> Verb:
    def does() -> NoReturn:
        raise error

    return does


def test_an_answer_goes_to_stdout_and_its_code_out(
    verb: Callable[[Verb], None], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    verb(lambda: Answer(ExitCode.INVALID, "größer\n"))
    assert typed("probe") == (4, "")
    assert capsysbinary.readouterr().out == "größer\n".encode()


@pytest.mark.parametrize(
    "error",
    [
        UsageError("m", hint="h"),
        RefusedError("m", hint="h"),
        InvalidError("m", hint="h"),
        IncompleteError("m", hint="h"),
        InputError("m", hint="h"),
        EngineError("m", hint="h"),
        AbsentError("m", hint="h"),
    ],
)
def test_an_error_is_said_with_its_hint_and_gives_its_own_code(
    verb: Callable[[Verb], None], error: QlockError
) -> None:
    verb(raising(error))
    assert typed("probe") == (int(error.exit_code), "error: m\nhint: h\n")


def test_every_code_of_an_error_is_in_the_tree() -> None:
    codes = {kind.exit_code for kind in QlockError.__subclasses__() if kind.__module__ == "qlock.errors"}
    assert codes == {ExitCode(number) for number in range(2, 9)}


def test_the_place_of_an_error_stands_in_front_and_no_empty_hint_is_shown(
    verb: Callable[[Verb], None],
) -> None:
    verb(raising(InputError("got `1`").within("slots").in_document("spec.toml")))
    assert typed("probe") == (6, "error: spec.toml: slots: got `1`\n")


def test_an_error_that_carries_findings_shows_all_of_them(verb: Callable[[Verb], None]) -> None:
    findings = (
        Finding(rule="canaries", where="point.A@s.canary.long", expected="x", found="y", effect="output"),
        Finding(
            rule="device",
            where="device.d.cores",
            expected="2",
            found="4",
            effect="timing",
            why="another machine",
        ),
    )
    verb(raising(FindingsError(findings)))
    assert typed("probe") == (
        3,
        (
            "error: point.A@s.canary.long is not as locked (canaries)\n"
            "  expected: x\n"
            "  found:    y\n"
            "  hint:     the engine computes something else than at resolve; resolve again, or find out why\n"
            "warning: device.d.cores is not as locked (device)\n"
            "  expected: 2\n"
            "  found:    4\n"
            "  why:      another machine\n"
            "  hint:     run on the locked device, or resolve for this one\n"
        ),
    )


def test_hostile_text_in_an_error_cannot_move_a_terminal(verb: Callable[[Verb], None]) -> None:
    verb(raising(InputError("got `\x1b[2J\u202e\nerror: fine`", hint="\r\x07")))
    assert typed("probe") == (
        6,
        "error: got `\\x1b[2J\\u202e↵error: fine`\nhint: \\r\\x07\n",
    )


def test_ctrl_c_is_130(verb: Callable[[Verb], None]) -> None:
    verb(raising(KeyboardInterrupt()))
    assert typed("probe") == (130, "error: interrupted\n")


def test_sigterm_is_143(verb: Callable[[Verb], None]) -> None:
    verb(raising(TerminatedExit()))
    assert typed("probe") == (143, "error: ended by SIGTERM\n")
    verb(raising(TerminatedExit("SIGHUP")))
    assert typed("probe") == (143, "error: ended by SIGHUP\n")


def test_what_fails_while_closing_does_not_hide_the_signal(verb: Callable[[Verb], None]) -> None:
    def does() -> NoReturn:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("the terminal is gone")

    verb(does)
    assert typed("probe") == (130, "error: interrupted\n")


def test_no_memory_is_something_absent(verb: Callable[[Verb], None]) -> None:
    verb(raising(MemoryError()))
    assert typed("probe") == (8, "error: out of memory\n")


def test_anything_else_is_a_bug_in_one_line(
    verb: Callable[[Verb], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QLOCK_TRACEBACK", raising=False)
    verb(raising(RuntimeError("of a thousand\nlines")))
    assert typed("probe") == (
        70,
        (
            "error: a bug in qlock: RuntimeError: of a thousand↵lines\n"
            "hint: run it again with QLOCK_TRACEBACK=1 and report what it says\n"
        ),
    )


def test_a_path_that_cannot_be_used_is_no_bug(verb: Callable[[Verb], None]) -> None:
    verb(raising(PermissionError(errno.EACCES, "no", "/secret/file")))
    assert typed("probe") == (8, "error: path `/secret/file` is not accessible: permission denied\n")


def test_a_verb_that_answers_nothing_is_a_bug(verb: Callable[[Verb], None]) -> None:
    verb(lambda: None)
    code, err = typed("probe")
    assert code == 70
    assert err.startswith(
        "error: a bug in qlock: TypeError: got `NoneType` from the verb, expected an answer\n"
    )


@pytest.mark.parametrize("how", ["option", "variable"])
def test_the_traceback_of_a_bug_is_shown_on_demand(
    verb: Callable[[Verb], None], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    verb(raising(RuntimeError("boom")))
    if how == "variable":
        monkeypatch.setenv("QLOCK_TRACEBACK", "1")
    code, err = typed(*(["--traceback"] if how == "option" else []), "probe")
    assert code == 70
    assert err.startswith("Traceback (most recent call last):\n")
    assert "\nRuntimeError: boom\nerror: a bug in qlock: RuntimeError: boom\n" in err


@pytest.mark.parametrize(
    "words, said",
    [
        (["prob"], "error: no such command 'prob'"),
        (["probe", "--many", "x"], "error: invalid value for '--many': 'x' is not a valid integer"),
        (["probe", "--money"], "error: no such option"),
        (["probe", "more"], "error: got unexpected extra argument (more)"),
        (["--nothing"], "error: no such option"),
    ],
)
def test_a_wrong_command_line_is_usage(verb: Callable[[Verb], None], words: list[str], said: str) -> None:
    verb(lambda: Answer(ExitCode.YES))
    code, err = typed(*words)
    assert code == 2
    where = "qlock probe" if words[0] == "probe" else "qlock"
    first, hint = err.split("\n")[:-1]
    assert first.startswith(said)
    assert hint == f"hint: see `{where} --help`"


def test_no_verb_at_all_is_usage_and_shows_the_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed()[0] == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Usage: qlock [OPTIONS] [COMMAND] [ARGS]...\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--version") == (0, "")
    assert capsys.readouterr().out == f"qlock {__version__}\n"


def files_of_verbs() -> list[str]:
    folder = Path(qlock.cli.__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if "\ndef verb(" in path.read_text())


def test_no_line_about_a_verb_is_cut_short_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--help") == (0, "")
    (_, _, commands) = capsys.readouterr().out.partition("Commands:\n")
    lines = commands.partition("\n\n")[0].split("\n")
    assert len(lines) > 10
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


def test_every_file_with_a_verb_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--help") == (0, "")
    rows = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0].split("\n")
    assert [row.split()[0] for row in rows] == files_of_verbs()
    assert "resolve" in files_of_verbs()


@pytest.mark.parametrize("name", files_of_verbs())
def test_every_verb_explains_itself_and_each_of_its_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(name, "--help") == (0, "")
    assert capsys.readouterr().out.startswith(f"Usage: qlock {name} ")
    command: click.Command = vars(sys.modules[f"qlock.cli.{name}"])["verb"]
    assert [
        option.name for option in command.params if isinstance(option, click.Option) and not option.help
    ] == []


def python(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **more}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("line", [["--help"], ["run", "--help"], ["--version"], ["nonsense"]])
def test_help_loads_no_heavy_library(line: list[str]) -> None:
    program = (
        "import sys\nfrom qlock.cli.main import main\n"
        f"sys.argv = ['qlock', *{line!r}]\ncode = main()\n"
        f"print('loaded', *sorted(sys.modules.keys() & {set(HEAVY)!r}), sep=':', file=sys.stderr)"
    )
    done = python("-c", program)
    assert done.stderr.rpartition("loaded")[2] == "\n"


def test_the_module_runs_too() -> None:
    done = python("-m", "qlock", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"qlock {__version__}\n", "")


def test_a_reader_that_goes_away_changes_neither_the_code_nor_stderr() -> None:
    program = (
        "import sys, os\nimport qlock.cli.main as m\nfrom qlock.cli.shown import Answer\n"
        "os.close(1)\nread, write = os.pipe()\nos.close(read)\nassert write == 1 or os.dup2(write, 1)\n"
        "m._put('x' * 100000)\nprint('still here', file=sys.stderr)"
    )
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (0, "still here\n")


@pytest.mark.parametrize("line", [["--help"], ["run", "--help"], ["--version"]])
def test_help_without_room_is_something_absent(line: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "qlock", *line],
            cwd=ROOT,
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    said = "error: the answer cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (8, said)


def test_help_that_nobody_reads_is_no_bug() -> None:
    program = (
        "import os, sys\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'qlock', '--help'])"
    )
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (8, "")


def test_an_answer_without_room_is_something_absent() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "qlock", "doctor", "--json"],
            cwd=ROOT,
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 8
    assert done.stderr.endswith("error: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_was_closed_before_the_start_is_no_bug(closed: int) -> None:
    program = (
        f"import os, sys\nos.close({closed})\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'qlock', 'verify', 'nowhere'])"
    )
    done = python("-c", program)
    assert done.returncode == 8
    assert ("error: no run in" in done.stderr) == (closed == 1)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_talk_that_nobody_can_hear_changes_nothing(
    verb: Callable[[Verb], None], capsysbinary: pytest.CaptureFixture[bytes], number: int
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> NoReturn:
            raise OSError(number, os.strerror(number))

    deaf = means(Gone())

    def does() -> Answer:
        deaf.talk.say("note", "nobody hears this")
        return Answer(ExitCode.NO, "the answer\n")

    verb(does)
    assert exit_code(["probe"], deaf) == 1
    assert capsysbinary.readouterr().out == b"the answer\n"
    verb(raising(InputError("nor this")))
    assert exit_code(["probe"], deaf) == 6


def test_a_full_disk_under_stderr_changes_neither_the_answer_nor_the_code() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "qlock", "verify", "nowhere"],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=full,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 8


SLEEPER = """
import contextlib, sys, time, types
import click
import qlock.cli.main as m
module = types.ModuleType("qlock.cli.probe")
@click.command("probe")
@click.pass_obj
def verb(means, /):
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: print("closed", flush=True))
        print("ready", flush=True)
        time.sleep(60)
module.verb = verb
sys.modules["qlock.cli.probe"] = module
m._files = lambda: ["probe"]
sys.argv = ["qlock", "probe"]
raise SystemExit(m.main())
"""


@pytest.mark.parametrize(
    "number, code, said",
    [
        (signal.SIGTERM, 143, "error: ended by SIGTERM\n"),
        (signal.SIGHUP, 143, "error: ended by SIGHUP\n"),
        (signal.SIGINT, 130, "error: interrupted\n"),
    ],
)
def test_a_signal_closes_what_is_open_and_gives_its_code(
    number: signal.Signals, code: int, said: str
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    out, err = child.communicate()
    assert (child.returncode, out, err) == (code, "closed\n", said)


def test_json_of_an_answer_is_one_document(
    capsysbinary: pytest.CaptureFixture[bytes], verb: Callable[[Verb], None]
) -> None:
    from qlock.cli.shown import document

    verb(lambda: Answer(ExitCode.YES, document({"path": Path("a/b"), "text": "\x9b\u202e"})))
    assert typed("probe") == (0, "")
    out = capsysbinary.readouterr().out
    assert out == b'{\n "path": "a/b",\n "text": "\\u009b\\u202e"\n}\n'
    assert json.loads(out) == {"path": "a/b", "text": "\x9b\u202e"}
