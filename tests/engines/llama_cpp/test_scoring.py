"""The cost of tokens: by a worker on the build's libraries, by llama-perplexity, by the server."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from qlock.core.kept_logits import Layout, encoded, head_bytes
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Done,
    Engine,
    Keep,
    Kept,
    KeptFile,
    Measure,
    Measured,
    Work,
)
from qlock.engines.llama_cpp import LlamaCpp, perplexity
from qlock.engines.llama_cpp_python import open_engine
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import Opener, changed, load_of
from tests.fakes.llama_server import BOS, requests_of

live = pytest.mark.live

WITHOUT_BINDINGS = "qlock: tokens are scored without llama-cpp-python: `python"

TEXT = (
    "The keeper climbed the stairs slowly, because there were one hundred and twelve of them, and because there was no"
    " reason to hurry. At the top he cleaned the glass, filled the lamp with oil, and waited for the light to go."
)


def measured(engine: LlamaCpp, *, tokens: tuple[int, ...], score_from: int) -> Measured | Broken:
    engine.submit(Measure(id="m", tokens=tokens, score_from=score_from))
    done = engine.next_done()
    assert isinstance(done, Measured | Broken)
    return done


def test_without_bindings_the_server_scores_token_by_token(
    played: Opener, model: Path, tmp_path: Path
) -> None:
    engine = played()
    engine.load(load_of(model))
    assert engine.label() == "llama.cpp 9333 (35c9b1f39)"
    tokens = (BOS, 104, 105, 106)
    done = measured(engine, tokens=tokens, score_from=2)
    assert isinstance(done, Measured)
    assert len(done.nats) == 2
    assert all(1 < cost < 8 for cost in done.nats)
    # Why it is so is said in its log, once.
    said = engine.log_tail().split("\n")
    assert len([line for line in said if line.startswith(WITHOUT_BINDINGS)]) == 1
    measured(engine, tokens=tokens, score_from=3)
    assert [line for line in engine.log_tail().split("\n") if line.startswith("qlock: ")] == [said[-1]]
    assert engine.label() == "llama.cpp 9333 (35c9b1f39), tokens scored without llama-cpp-python"
    asked = requests_of(tmp_path / "build")[:2]
    assert [(one["prompt"], one["logit_bias"], one["n_predict"]) for one in asked] == [
        ([BOS, 104], [[105, 10_000.0]], 1),
        ([BOS, 104, 105], [[106, 10_000.0]], 1),
    ]


def test_a_model_that_makes_no_sense_costs_as_much_as_guessing(played: Opener, model: Path) -> None:
    means = []
    for behaviour in ({}, {"gibberish": True}):
        engine = played(**behaviour)
        engine.load(load_of(model))
        # What the good model itself would say costs little.
        tokens = (BOS, 104, 105, 106)
        done = measured(engine, tokens=tokens, score_from=1)
        assert isinstance(done, Measured)
        means.append(sum(done.nats) / len(done.nats))
    assert abs(means[1] - 5.55) < 0.1  # ln 258
    assert means[0] != means[1]


@pytest.mark.parametrize(
    "tokens, score_from, why",
    [
        ((), 1, "got no tokens, expected at least one"),
        ((BOS, 999), 1, "got token `999`, expected one of `0` to `257`"),
        ((BOS, -1), 1, "got token `-1`, expected one of `0` to `257`"),
        ((BOS,) * 513, 1, "got `513` tokens to measure, expected at most the context of `512`"),
        ((BOS, 1), 0, "got `score_from = 0`, expected `1` to `1`"),
        ((BOS, 1), 2, "got `score_from = 2`, expected `1` to `1`"),
    ],
)
def test_work_that_cannot_be_done(
    played: Opener, model: Path, *, tokens: tuple[int, ...], score_from: int, why: str
) -> None:
    engine = played()
    engine.load(load_of(model))
    assert measured(engine, tokens=tokens, score_from=score_from) == Broken(id="m", why=why)


WINDOW = (BOS, *b"abcdefghijklmno")


def test_a_window_without_the_program_is_scored_by_the_server(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    done = measured(engine, tokens=WINDOW, score_from=9)
    assert isinstance(done, Measured)
    assert len(done.nats) == 7


def with_program(folder: Path, script: str) -> None:
    """A llama-perplexity that knows its options, and else does as the script says."""
    program = folder / "llama-perplexity"
    options = (
        "model file save-all-logits chunks ctx-size batch-size ubatch-size threads threads-batch cache-type-k"
    )
    options += (
        " cache-type-v flash-attn no-kv-unified gpu-layers split-mode main-gpu kv-offload device swa-full"
    )
    helped = "".join(f"--{name} X\\n" for name in options.split())
    program.write_text(f"#!/bin/sh\ncase $1 in --help) printf -- '{helped}'; exit;; esac\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    "script, why",
    [
        (
            "echo 'error: the data file is too short'",
            "llama-perplexity wrote no logits: No such file or directory",
        ),
        (
            'while [ "$1" != --save-all-logits ]; do shift; done; echo cut > "$2"',
            "llama-perplexity wrote no logits: got `4` bytes",
        ),
        (
            'while [ "$1" != --save-all-logits ]; do shift; done; : > "$2"',
            "llama-perplexity wrote no logits: got `0` bytes",
        ),
    ],
)
def test_a_program_that_fails_with_exit_code_0_is_broken(
    played: Opener, model: Path, tmp_path: Path, *, script: str, why: str
) -> None:
    engine = played()
    with_program(tmp_path / "build", script)
    engine.load(load_of(model))
    assert measured(engine, tokens=WINDOW, score_from=9) == Broken(id="m", why=why)


def kept(place: Path) -> tuple[Path, str]:
    """The file of the window's log-probabilities, each token as likely as any other, and the line that closes it."""
    size, vocabulary = len(WINDOW), 258
    path = place / "kept"
    layout = Layout(window_tokens=size, vocab_tokens=vocabulary, parts=1)
    rows = encoded(np.zeros((size - 9, vocabulary), dtype=np.float32))
    path.write_bytes(head_bytes(layout, np.array([WINDOW], dtype=np.int32)) + rows)
    return path, f"Final estimate: PPL = {vocabulary}.0000 +/- 0.00001"


TELLS_AT_LAST = """while [ "$1" != --save-all-logits ]; do shift; done
cp {file} "$2"; echo x >> {tries}; echo '[1]258.0'
[ $(wc -l < {tries}) -lt {at} ] || echo '{line}'"""


@pytest.mark.parametrize("at, tries", [(1, 1), (5, 5), (6, 5)])
def test_a_program_that_lost_its_closing_line_is_asked_again_and_not_for_ever(
    played: Opener, model: Path, tmp_path: Path, *, at: int, tries: int
) -> None:
    engine = played()
    path, line = kept(tmp_path)
    with_program(
        tmp_path / "build", TELLS_AT_LAST.format(file=path, tries=tmp_path / "tries", line=line, at=at)
    )
    engine.load(load_of(model))
    done = measured(engine, tokens=WINDOW, score_from=9)
    assert (tmp_path / "tries").read_text() == tries * "x\n"
    if at == 6:
        assert done == Broken(
            id="m",
            why="llama-perplexity ended `5` times without its closing line `Final estimate: PPL = …`, the last time with"
            " `[1]258.0`",
        )
        return
    assert isinstance(done, Measured)
    assert done.nats == pytest.approx([math.log(258)] * 7, abs=1e-6)


def test_a_program_that_fails_is_quoted_and_ends_the_engine(
    played: Opener, model: Path, tmp_path: Path
) -> None:
    engine = played()
    with_program(tmp_path / "build", "echo 'error: no memory'; exit 1")
    engine.load(load_of(model))
    with pytest.raises(EngineError) as caught:
        measured(engine, tokens=WINDOW, score_from=9)
    assert caught.value.message == "`llama-perplexity --model` failed (exit code 1): error: no memory"


def test_a_window_that_no_text_becomes_is_broken(played: Opener, model: Path, tmp_path: Path) -> None:
    engine = played()
    with_program(tmp_path / "build", "exit 1")
    engine.load(load_of(model))
    assert measured(engine, tokens=(BOS, *[200] * 15), score_from=9) == Broken(
        id="m", why="no text becomes exactly these tokens, and llama-perplexity takes texts only"
    )


def test_too_many_tokens_are_not_scored_one_by_one(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model, context_tokens=1024))
    done = measured(engine, tokens=(BOS,) * 600, score_from=1)
    assert isinstance(done, Broken)
    assert done.why.startswith("cannot score `599` tokens one by one, expected at most `512`, and `python")


def test_a_server_that_dies_while_it_scores_ends_the_engine(played: Opener, model: Path) -> None:
    engine = played(die_on_item=2)
    engine.load(load_of(model))
    engine.submit(Measure(id="m", tokens=(BOS, 1, 2, 3), score_from=1))
    with pytest.raises(EngineError) as caught:
        engine.next_done()
    assert caught.value.message == (
        "the engine died (signal SIGABRT): GGML_ASSERT(n_tokens <= n_batch) failed"
    )


def test_without_bindings_there_is_no_reference(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    why = "tokens are scored without llama-cpp-python here, so no reference can be held against: `python"
    for reference in (load_of(model), KeptFile(path="/x")):
        with pytest.raises(EngineError) as caught:
            engine.refer(reference)
        assert caught.value.message.startswith(why)
        assert caught.value.hint == "take the engine `llama-cpp-python`"
    for work in (
        Contrast(id="x", tokens=(BOS, 1), score_from=1, pieces=False),
        Keep(id="x", tokens=(BOS, 1), score_from=1, path="/x", part=0),
    ):
        engine.submit(work)
        done = engine.next_done()
        assert isinstance(done, Broken)
        assert done.why.startswith(why)


@live
def test_a_reference_is_held_against_as_in_the_embedded_engine(
    real: LlamaCpp, build_bin: Path, smollm2_q4_1: Path, smollm2_q2_k: Path, tmp_path: Path
) -> None:
    load, beside = load_of(smollm2_q2_k, replicas=2), load_of(smollm2_q4_1, replicas=2)
    pinned = real.load(beside)
    real.load(load)
    (tokens,) = real.tokenize([TEXT], add_special=True, parse_special=False)
    works: list[Work] = [Contrast(id="c", tokens=tokens, score_from=1, pieces=True)]
    works.append(Keep(id="k", tokens=tokens[:32], score_from=17, path=f"{tmp_path}/a.kld", part=0))
    layout = Layout(window_tokens=32, vocab_tokens=pinned.vocab_tokens, parts=1)
    head = head_bytes(layout, np.array([tokens[:32]], dtype=np.int32))
    found = []
    with open_engine(lib_folder=build_bin) as embedded:
        embedded.load(msgspec.structs.replace(load, setting=changed()))
        for engine in (real, embedded):
            Path(f"{tmp_path}/a.kld").write_bytes(head)
            assert engine.refer(beside) == (pinned if engine is real else embedded.refer(beside))
            found.append([timeless(engine, work) for work in works])
            assert engine.refer(KeptFile(path=f"{tmp_path}/a.kld")) is None
            found[-1].append(
                timeless(engine, Contrast(id="f", tokens=tokens[:32], score_from=17, pieces=False))
            )
    assert found[0] == found[1]
    assert [type(done).__name__ for done in found[0]] == ["Contrasted", "Kept", "Contrasted"]
    with pytest.raises(EngineError, match="could not load the reference: cannot open `/gone`"):
        real.refer(KeptFile(path="/gone"))
    assert isinstance(measured(real, tokens=tokens, score_from=1), Measured)


def timeless(engine: Engine, work: Work) -> Done:
    engine.submit(work)
    match engine.next_done():
        case Contrasted() | Kept() as done:
            return msgspec.structs.replace(done, elapsed_s=0.0)
        case other:
            raise AssertionError(other)


@live
def test_all_ways_agree_on_a_real_model(real: LlamaCpp, build_bin: Path, smollm2_q4_1: Path) -> None:
    real.load(load_of(smollm2_q4_1))
    (tokens,) = real.tokenize([TEXT], add_special=True, parse_special=False)
    window = Measure(id="m", tokens=tokens[:32], score_from=17)
    scorer = real._scorer
    assert scorer is not None
    by_worker = measured(real, tokens=window.tokens, score_from=17)
    assert scorer.why_no_worker() == ""
    by_server = scorer._by_server(window)
    by_program = perplexity.measured(
        window, scorer._point, build=scorer._build, home=scorer._home, progress_s=120
    )
    assert isinstance(by_worker, Measured)
    for other, digits in ((by_server, 5e-4), (by_program, 5e-4)):
        assert isinstance(other, Measured)
        assert other.nats == pytest.approx(by_worker.nats, abs=digits)
    # The worker runs on the very libraries of the server, which are pinned once.
    libraries = [file.path for file in real.mapped_files() if "/libllama.so" in file.path]
    assert libraries == [str((build_bin / "libllama.so").resolve())]


@live
def test_a_window_costs_the_same_bits_as_in_the_embedded_engine(
    real: LlamaCpp, build_bin: Path, smollm2_q4_1: Path
) -> None:
    load = load_of(smollm2_q4_1)
    real.load(load)
    (tokens,) = real.tokenize([TEXT], add_special=True, parse_special=False)
    ours = measured(real, tokens=tokens, score_from=1)
    with open_engine(lib_folder=build_bin) as embedded:
        embedded.load(load)
        assert embedded.tokenize([TEXT], add_special=True, parse_special=False) == [tokens]
        embedded.submit(Measure(id="m", tokens=tokens, score_from=1))
        theirs = embedded.next_done()
    assert isinstance(ours, Measured)
    assert isinstance(theirs, Measured)
    assert ours.nats == theirs.nats
    assert changed().slots == 1
