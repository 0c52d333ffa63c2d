"""The engine on a real build of llama.cpp."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from qlock.core.verify import read_back_findings
from qlock.engines.interface import Done, Generate, Generated
from qlock.engines.llama_cpp import LlamaCpp, open_engine
from qlock.engines.llama_cpp_python import open_engine as open_embedded
from qlock.errors import AbsentError, EngineError
from tests.conftest import ROOT
from tests.engines.llama_cpp.conftest import DEADLINES, load_of, work
from tests.fakes.decoder import GREEDY
from tests.fakes.tiny_models import BOS, EOS, byte_token, write_tiny

pytestmark = pytest.mark.live

PROMPTS = tuple((BOS, byte_token(65 + place), byte_token(97 + place)) for place in range(5))


def answers(engine: LlamaCpp, asked: list[Generate]) -> list[Done]:
    """Answers in the order of the questions, without times."""
    for one in asked:
        engine.submit(one)
    found = [engine.next_done() for _ in asked]
    timeless = [
        msgspec.structs.replace(one, prefill_s=0.0, decode_s=0.0) if isinstance(one, Generated) else one
        for one in found
    ]
    return sorted(timeless, key=lambda one: one.id)


def asked(**changes: object) -> list[Generate]:
    sampling = msgspec.structs.replace(GREEDY, **changes)
    plain = [work(str(place), prompt, digest=True) for place, prompt in enumerate(PROMPTS)]
    return [msgspec.structs.replace(one, sampling=sampling) for one in plain]


def test_the_server_does_what_the_setting_says(real: LlamaCpp, tiny: Path) -> None:
    for changes in (
        {},
        {"flash_attention": True, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "threads": 1},
        {"batch_tokens": 2048, "ubatch_tokens": 1024},
        {"context_tokens": 300, "batch_tokens": 32, "ubatch_tokens": 16, "repack": False, "swa_full": False},
    ):
        load = load_of(tiny, **changes)
        assert read_back_findings("point.x", load.setting, real.load(load)) == []
        assert real.deviations() == ()


def test_what_it_says_of_itself_is_what_the_embedded_engine_says(
    real: LlamaCpp, build_bin: Path, tiny: Path
) -> None:
    load = load_of(tiny)
    with open_embedded(lib_folder=build_bin) as embedded:
        assert real.load(load) == embedded.load(load)
        assert real.system_info() == embedded.system_info()
        texts = ["the thé\n 👋", "", "<s>a</s>"]
        for add_special in (True, False):
            for parse_special in (True, False):
                ours = real.tokenize(texts, add_special=add_special, parse_special=parse_special)
                theirs = embedded.tokenize(texts, add_special=add_special, parse_special=parse_special)
                assert ours == theirs


def test_it_takes_the_memory_that_the_embedded_engine_takes_and_more_for_every_further_server(
    real: LlamaCpp, build_bin: Path, tiny: Path
) -> None:
    load = load_of(tiny, replicas=1)
    real.load(load)
    alone = {(one.place, one.use): one.size_bytes for one in real.memory()}
    with open_embedded(lib_folder=build_bin) as embedded:
        embedded.load(load)
        assert {(one.place, one.use): one.size_bytes for one in embedded.memory()} == alone
    assert {use for _, use in alone} >= {"model", "KV", "compute"}
    real.load(load_of(tiny, replicas=3))
    assert {(one.place, one.use): one.size_bytes for one in real.memory()} == {
        (place, use): size if place == "CPU_Mapped" else 3 * size for (place, use), size in alone.items()
    }


def test_a_gpu_that_is_not_there_is_a_finding(real: LlamaCpp, tiny: Path) -> None:
    load = load_of(tiny, gpu_layers=99)
    found = read_back_findings("point.x", load.setting, real.load(load))
    assert [(one.where, one.expected, one.found) for one in found] in (
        [("point.x.layers_offloaded", "3", "0")],
        [],  # on a machine that has one
    )


def test_greedy_answers_are_those_of_the_embedded_engine(real: LlamaCpp, build_bin: Path, tiny: Path) -> None:
    load = load_of(tiny)
    real.load(load)
    ours = answers(real, [work(str(place), prompt) for place, prompt in enumerate(PROMPTS)])
    with open_embedded(lib_folder=build_bin) as embedded:
        embedded.load(load)
        for mine, prompt in zip(ours, PROMPTS, strict=True):
            embedded.submit(work(mine.id, prompt))
            theirs = embedded.next_done()
            assert isinstance(mine, Generated)
            assert isinstance(theirs, Generated)
            assert (mine.tokens, mine.text, mine.ending) == (theirs.tokens, theirs.text, theirs.ending)


def test_outputs_are_the_same_bytes_with_one_server_and_with_three(real: LlamaCpp, tiny: Path) -> None:
    found = []
    for slots in (1, 3, 1):
        real.load(load_of(tiny, replicas=slots))
        assert len(real.pids) == slots
        greedy = answers(real, asked())
        drawn = answers(real, asked(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=7))
        found.append([msgspec.json.encode(one) for one in (*greedy, *drawn)])
    assert found[0] == found[1] == found[2]


def test_every_sampler_reaches_the_server(real: LlamaCpp, tiny: Path) -> None:
    """With a seed the same text, with another seed another one; penalties and bounds are obeyed."""
    real.load(load_of(tiny))
    warm = {"temperature": 1.5, "seed": 3}
    once, again, other = (answers(real, asked(**warm | {"seed": seed})) for seed in (3, 3, 4))
    assert once == again
    assert once != other
    greedy = answers(real, asked())
    assert answers(real, asked(**warm, top_k=1)) == greedy
    assert answers(real, asked(**warm, min_p=1.0)) == greedy
    penalized = answers(real, asked(frequency_penalty=100.0, penalty_tokens=64))
    for one in penalized:
        assert isinstance(one, Generated)
        assert len(set(one.tokens)) == len(one.tokens)


def test_endings_are_told_apart(real: LlamaCpp, tiny: Path) -> None:
    real.load(load_of(tiny, context_tokens=300))
    (plain,) = answers(real, [work("plain", PROMPTS[0], answer_tokens=12)])
    assert isinstance(plain, Generated)
    assert (plain.ending, len(plain.tokens)) == ("budget", 12)
    # Not a character that stands for bytes of none.
    (part,) = re.findall(r"[ -~]{2}", plain.text)[:1]
    stopped, full, over = answers(
        real,
        [
            work("1", PROMPTS[0], answer_tokens=12, stop=(part,)),
            work("2", (BOS,) * 290, answer_tokens=12, ignore_eos=True),
            work("3", (BOS,) * 300),
        ],
    )
    assert isinstance(stopped, Generated)
    assert isinstance(full, Generated)
    assert isinstance(over, Generated)
    assert (stopped.ending, stopped.why, stopped.text) == ("stop", part, plain.text[: plain.text.index(part)])
    assert (full.ending, len(full.tokens)) == ("context", 10)
    assert (over.ending, over.tokens) == ("context", ())


def test_the_end_token_ends_an_answer_and_is_no_part_of_it(real: LlamaCpp, smollm2_q4_1: Path) -> None:
    real.load(load_of(smollm2_q4_1))
    prompt = "<|im_start|>user\nSay OK.<|im_end|>\n<|im_start|>assistant\n"
    (tokens,) = real.tokenize([prompt], add_special=False, parse_special=True)
    (done,) = answers(real, [work("a", tokens, answer_tokens=60)])
    assert isinstance(done, Generated)
    assert done.ending == "eos"
    assert not {0, 2} & set(done.tokens)
    assert "<|im_end|>" not in done.text


def test_a_file_that_is_no_model_is_quoted(real: LlamaCpp, tmp_path: Path) -> None:
    path = tmp_path / "torn.gguf"
    path.write_bytes(write_tiny(tmp_path / "tiny.gguf").read_bytes()[:100_000])
    with pytest.raises(EngineError) as caught:
        real.load(load_of(path))
    assert caught.value.message.startswith("the server did not start (exit code 1): ")
    assert "model is corrupted or incomplete" in caught.value.message
    with pytest.raises(AbsentError, match=r"^cannot read `/nowhere\.gguf`: No such file or directory$"):
        real.load(load_of(Path("/nowhere.gguf")))


def test_another_point_can_be_loaded_after_one(real: LlamaCpp, tiny: Path) -> None:
    real.load(load_of(tiny))
    before = real.pids
    real.load(load_of(tiny, context_tokens=1024))
    assert not set(before) & set(real.pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in before)


def test_the_files_of_llama_cpp_are_mapped_once_each(real: LlamaCpp, build_bin: Path, tiny: Path) -> None:
    real.load(load_of(tiny, replicas=2))
    answers(real, asked())
    ours = [Path(one.path) for one in real.mapped_files() if Path(one.path).name.startswith(("lib", "llama"))]
    build = [path.name for path in ours if path.parent == build_bin.resolve()]
    assert build == sorted(set(build))
    # A library is known by its own name, not by that of a link to it.
    wanted = ("llama-server", "libllama.so", "libggml-cpu.so")
    assert {(build_bin / name).resolve().name for name in wanted} <= set(build)


def test_the_server_dies_with_qlock(build_bin: Path, tiny: Path, temporary: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.engines.llama_cpp.conftest import load_of\n"
        "from qlock.engines.llama_cpp import open_engine\n"
        "engine = open_engine(lib_folder=Path(sys.argv[1]))\n"
        "engine.load(load_of(Path(sys.argv[2]), replicas=2))\n"
        "print(*engine.pids, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(build_bin), str(tiny)],
        cwd=ROOT,
        env={"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    until = time.monotonic() + 30
    while any(running(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in pids if running(pid)] == []


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_nothing_is_left_behind(build_bin: Path, tiny: Path, temporary: Path) -> None:
    with open_engine(lib_folder=build_bin, deadlines=DEADLINES) as engine:
        engine.load(load_of(tiny))
        pids = engine.pids
        os.kill(pids[0], signal.SIGKILL)
        while running(pids[0]):
            time.sleep(0.01)
        engine.submit(work("a", PROMPTS[0]))
        with pytest.raises(EngineError, match=r"^the engine "):
            engine.next_done()
        assert "llama_context" in engine.log_tail() or engine.log_tail()
    assert list(temporary.iterdir()) == []
    assert EOS == 2
