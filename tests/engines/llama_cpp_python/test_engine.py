"""How the child process ends, and what is made of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.facts import Buffer
from qlock.engines.interface import Engine, Generate, Load, Vocabulary
from qlock.engines.llama_cpp_python import Deadlines, LlamaCppPython, last_words, open_engine, wire
from qlock.errors import EngineError
from tests.conftest import ROOT
from tests.fakes.decoder import GREEDY, SETTING
from tests.fakes.documents import a_read_back
from tests.fakes.tiny_models import BOS, MIXTURE, write_tiny

live = pytest.mark.live

OPENER: Callable[..., Engine] = open_engine
"""For mypy: the engine keeps the protocol."""

PATIENT = Deadlines(start_s=60, load_s=60, progress_s=60, write_s=60)
LONG = Generate(
    id="long",
    tokens=(BOS, 70),
    sampling=msgspec.structs.replace(GREEDY, answer_tokens=2000, ignore_eos=True),
    logprobs=False,
    logits_digest=False,
)
WIDE = msgspec.structs.replace(SETTING, context_tokens=2048)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where engines of this test make their folders; what is there at the end was left behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def scripted(tmp_path: Path, script: str, *, deadlines: Deadlines = PATIENT) -> LlamaCppPython:
    """An engine whose child is a shell script."""
    program = tmp_path / "child.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return LlamaCppPython(argv=(str(program),), lib_folder=None, variables={}, deadlines=deadlines)


HELLO = """echo '{"kind":"hello","label":"l","system_info":"s"}'"""


@live
def test_a_child_killed_in_the_middle_of_work_is_an_error_and_nothing_is_left(
    bindings: None, tiny: Path, temporary: Path
) -> None:
    with open_engine(deadlines=PATIENT) as engine:
        engine.load(Load(weights=(str(tiny),), setting=WIDE))
        engine.submit(LONG)
        pid = engine.pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"^the engine died \(signal SIGKILL\): "):
            engine.next_done()
        assert is_gone(pid)
        assert list(temporary.iterdir()) == []
        with pytest.raises(EngineError, match=r"^the engine has ended: signal SIGKILL$"):
            engine.submit(msgspec.structs.replace(LONG, id="next"))
        assert "llama_context" in engine.log_tail()


@live
def test_an_assertion_in_c_ends_the_child_alone_and_is_quoted(engine: LlamaCppPython, tmp_path: Path) -> None:
    shape = msgspec.structs.replace(MIXTURE, experts_used=5)
    path = write_tiny(tmp_path / "impossible.gguf", shape)
    with pytest.raises(EngineError) as caught:
        engine.load(Load(weights=(str(path),), setting=SETTING))
    assert caught.value.message.startswith("the engine died (signal SIGABRT): ")
    assert "GGML_ASSERT(n_expert_used_max <= hparams.n_expert) failed" in caught.value.message


@live
def test_a_child_that_hangs_is_ended_at_the_deadline(bindings: None, tiny: Path) -> None:
    with open_engine(deadlines=msgspec.structs.replace(PATIENT, progress_s=0.5)) as engine:
        engine.load(Load(weights=(str(tiny),), setting=WIDE))
        pid = engine.pid
        os.kill(pid, signal.SIGSTOP)
        engine.submit(LONG)
        with pytest.raises(
            EngineError, match=r"^the engine gave no sign of life for 0\.5 s, asked to compute: "
        ):
            engine.next_done()
        assert is_gone(pid)


def test_slow_work_that_goes_on_is_no_hang(tmp_path: Path) -> None:
    signs = """for n in 1 2 3 4 5 6; do sleep 0.25; echo '{"kind":"alive"}'; done"""
    broken = """echo '{"kind":"broken","id":"long","why":"w"}'"""
    deadlines = msgspec.structs.replace(PATIENT, progress_s=1.0)
    with scripted(tmp_path, f"{HELLO}; {signs}; {broken}; cat >/dev/null", deadlines=deadlines) as engine:
        engine.submit(LONG)
        assert engine.next_done().id == "long"


@live
def test_the_child_dies_with_qlock(bindings: None, temporary: Path) -> None:
    program = (
        "import os, signal\n"
        "from qlock.engines.llama_cpp_python import open_engine\n"
        "engine = open_engine()\n"
        "print(engine.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    for _ in range(200):
        if is_gone(int(done.stdout)):
            break
        time.sleep(0.05)
    assert is_gone(int(done.stdout))


@live
def test_the_child_inherits_nothing(bindings: None, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "LLAMA_ATTN_ROT_DISABLE",
        "GGML_CPU_TILED_MM",
        "OMP_NUM_THREADS",
        "LD_LIBRARY_PATH",
        "SECRET",
    ):
        monkeypatch.setenv(name, "1")
    with open_engine(variables={"CUDA_VISIBLE_DEVICES": "GPU-1234"}) as engine:
        seen = dict(
            entry.split("=", 1)
            for entry in Path(f"/proc/{engine.pid}/environ").read_text().split("\0")
            if entry
        )
        home = seen.pop("HOME")
        assert list(Path(home).iterdir()) == []
        assert list(Path(f"/proc/{engine.pid}/cwd").resolve().iterdir()) == []
        assert seen == {
            "XDG_CONFIG_HOME": home,
            "LC_ALL": "C",
            "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GGML_NO_BACKTRACE": "1",
            "OMP_DYNAMIC": "FALSE",
            "OMP_PROC_BIND": "FALSE",
            "GOMP_SPINCOUNT": "1000",
            "OPENBLAS_NUM_THREADS": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": "GPU-1234",
        }


@live
def test_the_files_of_llama_cpp_are_mapped_once_each(shared_engine: LlamaCppPython, tiny: Path) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=WIDE))
    shared_engine.submit(msgspec.structs.replace(LONG, sampling=GREEDY))
    shared_engine.next_done()
    names = [Path(file.path).name for file in shared_engine.mapped_files() if not file.deleted]
    ours = [name for name in names if name.startswith(("libllama", "libggml"))]
    assert {name.partition(".")[0] for name in ours} == {"libggml", "libggml-base", "libggml-cpu", "libllama"}
    assert len(ours) == 4


@live
def test_the_libraries_of_another_build_can_be_run(bindings: None, llama_bin: Path, tiny: Path) -> None:
    with open_engine(lib_folder=llama_bin) as engine:
        engine.load(Load(weights=(str(tiny),), setting=WIDE))
        ours = {
            Path(file.path).parent
            for file in engine.mapped_files()
            if Path(file.path).name.startswith(("libllama", "libggml"))
        }
        assert ours == {llama_bin.resolve()}
        assert engine.label().startswith("llama-cpp-python 0.3.36, llama.cpp ")
        assert engine.system_info().startswith("CPU : ")


@live
def test_a_folder_without_the_library_is_said(bindings: None, tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(EngineError) as caught:
        open_engine(lib_folder=tmp_path)
    assert caught.value.message == (
        "the engine could not start: llama.cpp's library does not load: Shared library with base name 'llama' not"
        " found"
    )
    assert list(temporary.iterdir()) == []


def test_a_program_that_is_not_there_is_an_engine_that_did_not_start(tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(EngineError) as caught:
        open_engine(python=str(tmp_path / "python"))
    assert caught.value.message == (
        f"the engine did not start: got no program at `{tmp_path}/python`, expected an executable file by its"
        " absolute path"
    )
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "script, message",
    [
        ("echo first >&2; echo last >&2; exit 3", "the engine died (exit code 3): first | last"),
        ("exit 0", "the engine died (exit code 0)"),
        ("kill -SEGV $$", "the engine died (signal SIGSEGV)"),
        (
            "echo hello",
            "the engine answered nonsense: got `hello`, expected a word: JSON is malformed: invalid character (byte 0)",
        ),
        (
            """echo '{"kind":"tokens","tokens":[1]}'""",
            "the engine answered nonsense: got the word `tokens`, expected `hello`",
        ),
        ("""echo '{"kind":"refused","why":"no"}'""", "the engine could not start: no"),
    ],
)
def test_a_child_that_does_not_greet_is_an_error_and_leaves_nothing(
    tmp_path: Path, temporary: Path, script: str, message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        scripted(tmp_path, script)
    assert caught.value.message == message
    assert list(temporary.iterdir()) == []


def test_a_child_that_is_silent_is_ended_at_the_deadline(tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(EngineError) as caught:
        scripted(tmp_path, "exec sleep 60", deadlines=msgspec.structs.replace(PATIENT, start_s=0.1))
    assert caught.value.message == "the engine gave no sign of life for 0.1 s, asked to start"
    assert list(temporary.iterdir()) == []


def test_an_endless_line_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_LINE_BYTES", 1 << 16)
    with pytest.raises(EngineError) as caught:
        scripted(tmp_path, "exec cat /dev/zero")
    assert caught.value.message == "the engine answered nonsense: got a line of more than `65536` bytes"


def test_an_answer_that_nobody_asked_for_is_nonsense(tmp_path: Path) -> None:
    broken = """echo '{"kind":"broken","id":"other","why":"w"}'"""
    with scripted(tmp_path, f"{HELLO}; {broken}; cat >/dev/null") as engine:
        engine.submit(LONG)
        with pytest.raises(EngineError) as caught:
            engine.next_done()
    assert caught.value.message == (
        "the engine answered nonsense: got an answer to `other`, which was not asked"
    )


def test_done_work_that_comes_before_an_answer_is_kept(tmp_path: Path) -> None:
    words = """echo '{"kind":"broken","id":"long","why":"w"}'; echo '{"kind":"tokens","tokens":[7]}'"""
    with scripted(tmp_path, f"{HELLO}; {words}; cat >/dev/null") as engine:
        engine.submit(LONG)
        assert engine.tokenize(["a"], add_special=False, parse_special=False) == [(7,)]
        assert engine.next_done().id == "long"


@pytest.mark.parametrize("name", ["other", "long"])
def test_done_work_that_comes_before_an_answer_is_held_to_what_was_asked(tmp_path: Path, name: str) -> None:
    word = f"""echo '{{"kind":"broken","id":"{name}","why":"w"}}'"""
    tokens = """echo '{"kind":"tokens","tokens":[7]}'"""
    with scripted(tmp_path, f"{HELLO}; {word}; {word}; {tokens}; cat >/dev/null") as engine:
        engine.submit(LONG)
        with pytest.raises(EngineError) as caught:
            engine.tokenize(["a"], add_special=False, parse_special=False)
    assert caught.value.message == (
        f"the engine answered nonsense: got an answer to `{name}`, which was not asked"
    )


def test_a_child_that_takes_no_orders_is_ended(tmp_path: Path) -> None:
    deadlines = msgspec.structs.replace(PATIENT, write_s=0.2)
    with scripted(tmp_path, f"{HELLO}; exec sleep 60", deadlines=deadlines) as engine:
        large = msgspec.structs.replace(LONG, tokens=(1,) * 200_000)
        with pytest.raises(EngineError, match=r"^the engine took no orders for 0\.2 s$"):
            engine.submit(large)


def test_misuse_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    with scripted(tmp_path, f"{HELLO}; cat >/dev/null") as engine:
        with pytest.raises(ValueError, match=r"^nothing is under way$"):
            engine.next_done()
        engine.submit(LONG)
        with pytest.raises(ValueError, match=r"^`long` is under way already$"):
            engine.submit(LONG)
        with pytest.raises(ValueError, match=r"^cannot load a model while work is under way$"):
            engine.load(Load(weights=("/m",), setting=SETTING))
        with pytest.raises(ValueError, match=r"^cannot probe the schedule while work is under way$"):
            engine.probe([(1,)], steps=1)


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    engine = scripted(tmp_path, f"echo noted >&2; {HELLO}; cat >/dev/null")
    engine.close()
    engine.close()
    assert engine.log_tail() == "noted"
    assert engine.label() == "l"
    with pytest.raises(EngineError, match=r"^the engine has ended: "):
        engine.mapped_files()


def test_last_words_are_the_assertion_or_else_the_last_lines() -> None:
    assert last_words("a\nb\n\nc\nd\n") == "b | c | d"
    assertion = "/x.cpp:7: GGML_ASSERT(n > 0) failed"
    assert last_words(f"a\n{assertion}\ndumped\nmore\nlines\n") == assertion
    assert last_words("") == ""


def test_last_words_cannot_move_a_terminal_s_cursor() -> None:
    assert last_words("\x1b[2Jgone") == r"\x1b[2Jgone"


LOADED = wire.Loaded(
    read_back=a_read_back(),
    devices=("0000:01:00.0",),
    memory=(Buffer(place="CUDA0", use="model", size_bytes=1),),
)
REFERRED = wire.Referred(read_back=None, devices=("0000:02:00.0",))
REFUSED = wire.Refused(why="w")
VOCABULARY = Vocabulary(add_bos=True, bos_token=1, bos_text="<s>", eos_text="</s>")
WHERE = Load(weights=("m.gguf",), setting=SETTING)
BOTH = ("0000:01:00.0", "0000:02:00.0")


def load_it(engine: LlamaCppPython) -> object:
    return engine.load(WHERE)


def refer_to_it(engine: LlamaCppPython) -> object:
    return engine.refer(WHERE)


def load_vocabulary(engine: LlamaCppPython) -> object:
    return engine.vocabulary("h.gguf")


@pytest.mark.parametrize(
    "order, answer, devices",
    [
        (load_it, REFUSED, ()),
        (load_vocabulary, REFUSED, ()),
        (load_vocabulary, VOCABULARY, ()),
        (refer_to_it, REFUSED, BOTH[:1]),
    ],
)
def test_cards_of_what_is_loaded_no_more_are_forgotten(
    tmp_path: Path,
    order: Callable[[LlamaCppPython], object],
    answer: wire.Word,
    devices: tuple[str, ...],
) -> None:
    words = tmp_path / "words"
    words.write_bytes(b"".join(msgspec.json.encode(word) + b"\n" for word in (LOADED, REFERRED, answer)))
    with scripted(tmp_path, f"{HELLO}; cat {words}; cat >/dev/null") as engine:
        load_it(engine)
        refer_to_it(engine)
        assert (engine.devices(), engine.memory()) == (BOTH, LOADED.memory)
        with contextlib.suppress(EngineError):
            order(engine)
        assert (engine.devices(), engine.memory()) == (devices, LOADED.memory if devices else ())
