"""Work spread over servers that die, hang, or answer what they were not asked; and over good ones."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import msgspec
import pytest

from qlock.core.canaries import CANARIES
from qlock.engines.interface import Broken, Generated
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import DEADLINES, Opener, load_of, work
from tests.fakes.llama_server import BOS, requests_of

DISOBEYS = "the server does not do as it is told: got"
CHAIN = "'top_k', 'top_p', 'min_p'"
PARTLY = "the server did not compute the whole prompt: got"
PROMPT = (BOS, 104, 105)


def generated(opener: Opener, model: Path, **behaviour: object) -> Generated:
    """What one prompt gives."""
    engine = opener(**behaviour)
    engine.load(load_of(model))
    engine.submit(work("item", PROMPT, stop=("\n",)))
    done = engine.next_done()
    assert isinstance(done, Generated)
    return done


def failure(opener: Opener, model: Path, **behaviour: object) -> str:
    """Why the engine failed at one prompt; its server is gone then."""
    engine = opener(**behaviour)
    engine.load(load_of(model))
    (pid,) = engine.pids
    engine.submit(work("item", PROMPT, digest=True))
    with pytest.raises(EngineError) as caught:
        engine.next_done()
    assert not Path(f"/proc/{pid}").exists()
    return caught.value.message


def broken(opener: Opener, model: Path, **behaviour: object) -> str:
    """Why one prompt could not be answered; the engine lives on."""
    engine = opener(**behaviour)
    engine.load(load_of(model))
    engine.submit(work("item", PROMPT))
    done = engine.next_done()
    assert isinstance(done, Broken)
    assert engine.tokenize(["a"], add_special=False, parse_special=False) == [(97,)]
    return done.why


def test_a_reply_has_tokens_text_and_times(played: Opener, model: Path) -> None:
    done = generated(played, model, says="hello, w")
    assert done == Generated(
        id="item",
        tokens=tuple(b"hello, w"),
        text="hello, w",
        ending="budget",
        why="",
        logprobs=(),
        logits_digest="",
        prefill_s=0.0015,
        decode_s=0.0025,
    )


def test_characters_of_several_tokens_are_joined(played: Opener, model: Path) -> None:
    done = generated(played, model, says="né 👋")
    assert (done.text, len(done.tokens)) == ("né 👋", 8)


def test_a_stop_text_is_cut_off_and_named(played: Opener, model: Path) -> None:
    done = generated(played, model, says="no\nway")
    assert (done.text, done.tokens, done.ending, done.why) == ("no", tuple(b"no\n"), "stop", "\n")


def test_an_end_token_is_no_part_of_the_answer(played: Opener, model: Path) -> None:
    done = generated(played, model, ends=True)
    assert (len(done.tokens), done.ending) == (5, "eos")
    assert len(done.text) == 5


def test_a_loop_runs_to_its_budget(played: Opener, model: Path) -> None:
    done = generated(played, model, loop=True)
    assert (done.text, done.ending) == ("aaaaaaaa", "budget")


def test_a_prompt_longer_than_the_context_is_no_error(played: Opener, model: Path) -> None:
    done = generated(played, model, ctx400=True)
    assert (done.tokens, done.ending, done.why) == (
        (),
        "context",
        "a prompt of `3` tokens leaves no room in a context of `512`",
    )


def test_a_context_that_ends_is_told_apart_from_a_budget(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    engine.submit(work("full", (BOS,) * 508, answer_tokens=20))
    done = engine.next_done()
    assert isinstance(done, Generated)
    assert (len(done.tokens), done.ending, done.why) == (
        4,
        "context",
        "prompt and answer fill the context of `512` tokens",
    )


def test_a_server_that_dies_at_an_item_is_quoted(played: Opener, model: Path) -> None:
    engine = played(die_on_item=3)
    engine.load(load_of(model))
    for item in "123":
        engine.submit(work(item, PROMPT))
    assert [engine.next_done().id for _ in range(2)] == ["1", "2"]
    with pytest.raises(EngineError) as caught:
        engine.next_done()
    assert caught.value.message == (
        "the engine died (signal SIGABRT): GGML_ASSERT(n_tokens <= n_batch) failed"
    )


def test_a_server_killed_from_outside_is_an_error(played: Opener, model: Path) -> None:
    engine = played(wedge=True)
    engine.load(load_of(model))
    engine.submit(work("item", PROMPT))
    os.kill(engine.pids[0], signal.SIGKILL)
    with pytest.raises(EngineError, match=r"^the engine died \(signal SIGKILL\): "):
        engine.next_done()


def test_a_server_that_is_healthy_and_silent_is_ended(played: Opener, model: Path) -> None:
    deadlines = msgspec.structs.replace(DEADLINES, progress_s=1.0)
    assert failure(played, model, wedge=True, deadlines=deadlines) == (
        "the engine gave no sign of life for 1 s, asked to compute"
    )


def test_a_wedged_server_that_ignores_sigterm_is_killed(played: Opener, model: Path) -> None:
    deadlines = msgspec.structs.replace(DEADLINES, progress_s=0.5, close_s=0.2)
    failure(played, model, wedge=True, ignores_sigterm=True, deadlines=deadlines)


def test_slow_work_that_goes_on_is_no_hang(played: Opener, model: Path) -> None:
    deadlines = msgspec.structs.replace(DEADLINES, progress_s=1.0)
    began_s = time.monotonic()
    assert generated(played, model, slow=12, deadlines=deadlines).ending == "budget"
    assert time.monotonic() - began_s > 2 * 1.0


@pytest.mark.parametrize(
    "behaviour, message",
    [
        (
            {"echoes": {"temperature": 0.8}},
            "the server does not do as it is told: got `temperature = 0.8`, expected `0.0`",
        ),
        (
            {"echoes": {"samplers": ["top_k", "temperature"]}},
            f"{DISOBEYS} `samplers = ['top_k', 'temperature']`, expected `['penalties', {CHAIN}, 'temperature']`",
        ),
        ({"echoes": {"turbo": 1}}, "the server has a setting that qlock does not know: `turbo`"),
        ({"echo_lacks": "seed"}, "cannot verify `seed`: the server does not echo it"),
        (
            {"cached": 2},
            f"{PARTLY} `3` tokens with `2` from a cache, expected `3` with `0`",
        ),
        (
            {"evaluates_fewer": 1},
            f"{PARTLY} `2` tokens with `0` from a cache, expected `3` with `0`",
        ),
    ],
)
def test_a_server_that_does_not_obey_ends_the_engine(
    played: Opener, model: Path, *, behaviour: dict[str, object], message: str
) -> None:
    assert failure(played, model, **behaviour) == message


def test_a_server_that_is_swapped_between_two_requests_is_found(played: Opener, model: Path) -> None:
    engine = played(swap_later=True)
    engine.load(load_of(model))
    engine.submit(work("first", PROMPT))
    assert engine.next_done().id == "first"
    engine.submit(work("second", PROMPT))
    with pytest.raises(EngineError) as caught:
        engine.next_done()
    assert re.fullmatch(
        "another server answered: got the model `swapped`, expected `qlock-[0-9a-f]{16}`",
        caught.value.message,
    )


@pytest.mark.parametrize(
    "behaviour, why",
    [
        ({"answers": "<html>"}, "got `<html>`: JSON is malformed: invalid character (byte 0)"),
        ({"answers": "<html>", "status": 502}, "got HTTP status `502` and `<html>`"),
        ({"answers": "{}"}, "got `{}`: Object missing required field `content`"),
        ({"stop_type": "none"}, "got the ending `none`, expected `eos`, `word` or `limit`"),
        ({"stop_type": "eos"}, "got the ending `eos` without an end token"),
        (
            {"stop_type": "word", "stopping_word": "x"},
            "got the stop text `x`, which was not asked for",
        ),
        ({"stops_at": 5}, "got an end at `5` tokens, expected one at `8`"),
    ],
)
def test_an_answer_of_another_shape_is_an_error_of_the_item(
    played: Opener, model: Path, *, behaviour: dict[str, object], why: str
) -> None:
    assert broken(played, model, **behaviour) == f"the server answered nonsense: {why}"


@pytest.mark.parametrize("lacking", ["tokens", "timings", "stop_type", "generation_settings", "truncated"])
def test_an_answer_that_lacks_something_is_an_error_of_the_item(
    played: Opener, model: Path, lacking: str
) -> None:
    why = broken(played, model, answer_lacks=lacking)
    assert why.startswith("the server answered nonsense: got `{")
    assert why.endswith(f": Object missing required field `{lacking}`")


def test_every_request_says_every_sampler(played: Opener, model: Path, tmp_path: Path) -> None:
    generated(played, model)
    (asked,) = requests_of(tmp_path / "build")
    assert asked == {
        "prompt": list(PROMPT),
        "cache_prompt": False,
        "id_slot": 0,
        "return_tokens": True,
        "stream": False,
        "n_predict": 8,
        "n_probs": 0,
        "ignore_eos": False,
        "stop": ["\n"],
        "seed": 0,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repeat_last_n": 0,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "typical_p": 1.0,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 0,
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "n_keep": 0,
        "n_discard": 0,
        "min_keep": 0,
        "grammar": "",
        "logit_bias": [],
        "lora": [],
        "post_sampling_probs": False,
        "backend_sampling": False,
        "timings_per_token": False,
    }


def test_replicas_share_the_work_and_answer_as_one_does(played: Opener, model: Path) -> None:
    answers = []
    for slots in (1, 3):
        engine = played(slow=1)
        assert engine.load(load_of(model, replicas=slots)).slots == 1
        assert len(set(engine.pids)) == slots
        for item in range(7):
            engine.submit(work(str(item), (BOS, 97 + item), digest=True))
        answers.append(sorted((engine.next_done() for _ in range(7)), key=lambda done: done.id))
    assert answers[0] == answers[1]


def canaries(opener: Opener, model: Path, **behaviour: object) -> dict[str, str]:
    """Digests of what the fixed prompts give."""
    engine = opener(**behaviour)
    engine.load(load_of(model, context_tokens=2048))
    prompts = engine.tokenize(list(CANARIES.values()), add_special=True, parse_special=False)
    for name, tokens in zip(CANARIES, prompts, strict=True):
        engine.submit(work(name, tokens, digest=True, answer_tokens=4))
    found = {}
    for _ in CANARIES:
        done = engine.next_done()
        assert isinstance(done, Generated)
        found[done.id] = done.logits_digest
    return found


def test_a_server_that_breaks_on_long_prompts_alone_is_caught_by_the_long_canary(
    played: Opener, model: Path
) -> None:
    good, again, bad = (canaries(played, model, gibberish_long=on) for on in (False, False, True))
    assert good == again
    assert [name for name in CANARIES if good[name] != bad[name]] == ["long-prompt"]
