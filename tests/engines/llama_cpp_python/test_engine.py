"""How the child process ends, and what is made of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from qlock.engines.interface import Generate, Load
from qlock.engines.llama_cpp_python import Deadlines, LlamaCppPython, open_engine
from qlock.errors import EngineError
from tests.conftest import ROOT
from tests.fakes.decoder import GREEDY, SETTING
from tests.fakes.tiny_models import BOS, MIXTURE, write_tiny

live = pytest.mark.live

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
    return LlamaCppPython(argv=(str(program),), lib_folder=None, cuda_visible_devices="", deadlines=deadlines)


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
    with open_engine(cuda_visible_devices="GPU-1234") as engine:
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
