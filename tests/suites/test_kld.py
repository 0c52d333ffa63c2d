"""The suite `kld`: windows and traces, what is asked of them, and what numbers are taken for."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qlock.core.canon import to_struct
from qlock.core.exchange import Completed, Diverge, Diverged, Divergence, Failed, Reply, Scored, Ungraded
from qlock.core.kept_logits import decoded, encoded
from qlock.core.traces import write_traces
from qlock.engines.llama_cpp_python.measure import divergences_from_kept
from qlock.errors import InputError
from qlock.suites import kld, perplexity
from qlock.suites.interface import Answer, Item, play_back
from qlock.suites.kld import Params
from tests.core.test_traces import a_header, a_trace

TEXT = Params(text="file:t", window_tokens=4)
TRACES = Params(traces="file:t.jsonl")
FILE = write_traces(a_header(2), [a_trace(), a_trace("order-2", slices={}, prompt=(7,), answer=(8, 9, 10))])


def tokens_of(text: str) -> tuple[int, ...]:
    """A vocabulary of bytes with BOS 0."""
    return (0, *(1 + byte for byte in text.encode()))


def test_a_window_of_a_text_is_the_one_of_perplexity() -> None:
    data = {"text": b"the quick brown fox"}
    mine = kld.items(data, replace(TEXT, windows=3), tokens_of)
    theirs = perplexity.items(data, perplexity.Params(text="file:t", window_tokens=4, windows=3), tokens_of)
    assert [item.id for item in mine] == [item.id for item in theirs]
    for one, other in zip(mine, theirs, strict=True):
        asked, scored = (
            next(kld.ask(one, TEXT)),
            next(perplexity.ask(other, perplexity.Params(text="file:t"))),
        )
        assert isinstance(asked, Diverge)
        assert msgspec.to_builtins(asked) == msgspec.to_builtins(scored) | {
            "kind": "diverge",
            "pieces": False,
        }


def test_of_a_trace_only_the_answer_is_scored() -> None:
    first, second = kld.items({"traces": FILE}, TRACES, tokens_of)
    assert (first.id, first.slices) == ("order-1", {"bank": "north"})
    assert next(kld.ask(first, TRACES)) == Diverge(tokens=(1, 2, 3, 4, 5), score_from=3, pieces=True)
    assert next(kld.ask(second, TRACES)) == Diverge(tokens=(7, 8, 9, 10), score_from=1, pieces=True)


def test_traces_say_which_tokenizer_they_are_of() -> None:
    assert kld.tokenizer_of({"traces": FILE}, TRACES) == a_header().tokenizer_digest
    assert kld.tokenizer_of({"text": b"any"}, TEXT) == ""


def test_traces_say_whose_answers_they_are() -> None:
    assert kld.tensors_of({"traces": FILE}, TRACES) == a_header().tensors_digest
    assert kld.tensors_of({"text": b"any"}, TEXT) == ""


def test_a_window_is_written_out_where_there_is_a_text() -> None:
    assert msgspec.to_builtins(Params(text="file:t")) == {
        "text": "file:t",
        "window_tokens": 512,
        "stored": False,
    }
    assert msgspec.to_builtins(TRACES) == {"traces": "file:t.jsonl", "stored": False}


@pytest.mark.parametrize(
    "keys, message",
    [
        ({}, "suite: got neither of `text` and `traces`, expected one of them"),
        (
            {"text": "file:t", "traces": "file:u"},
            "suite: got both of `text` and `traces`, expected one of them",
        ),
        (
            {"traces": "file:u", "window_tokens": 256},
            "suite: window_tokens: got `256` with `traces`, which have no windows",
        ),
        (
            {"traces": "file:u", "stored": True},
            "suite: stored: got `true` with `traces` and no `stored_tokens`: whole rows are stored of windows of one length",
        ),
        (
            {"text": "file:t", "stored_tokens": 9},
            "suite: stored_tokens: got `9` without `stored = true`",
        ),
        (
            {"traces": "file:u", "windows": 3},
            "suite: windows: got `3` with `traces`, which have no windows",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        to_struct(keys, Params, name="suite")
    assert str(caught.value) == message


def test_a_short_text_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        kld.items({"text": b"abc"}, TEXT, tokens_of)
    assert str(caught.value) == "the text is too short: got 4 tokens, expected at least 8 (two windows)"


def an_item(tokens: int = 5, first: int = 3) -> Item:
    return Item(id="w", slices={}, body={"tokens": list(range(tokens)), "score_from": first})


def diverged(**changes: object) -> Diverged:
    reply = Diverged(
        nats=(1.0, 2.0),
        reference_nats=(1.0, 1.5),
        kld_nats=(0.0, 0.25),
        reverse_kld_nats=(0.0, 0.5),
        same_top=(True, False),
        pieces=(),
    )
    return replace(reply, **changes)


def outcome(reply: Diverged | None, params: Params = TEXT) -> object:
    return kld.grade(an_item(), Answer(diverged=reply), params)


def test_numbers_are_kept_as_they_are() -> None:
    assert outcome(diverged()) == Divergence(
        nats=(1.0, 2.0),
        reference_nats=(1.0, 1.5),
        kld_nats=(0.0, 0.25),
        reverse_kld_nats=(0.0, 0.5),
        same_top=(True, False),
        depth_tokens=3,
        token_kinds=(),
    )


def test_tokens_of_a_trace_are_told_by_what_they_are() -> None:
    graded = outcome(diverged(pieces=("It is ", "12")), TRACES)
    assert isinstance(graded, Divergence)
    assert graded.token_kinds == ("prose", "number")


def test_a_kept_row_of_a_large_vocabulary_may_leave_a_divergence_below_0() -> None:
    vocabulary = 262_144
    logits = np.full((2, vocabulary), -40.0, dtype=np.float32)
    logits[:, 0] = 0.0
    kept = decoded(encoded(logits), vocabulary).log_probabilities()
    found = divergences_from_kept(kept.copy(), kept, np.zeros(2, dtype=np.int32))
    assert found.reverse_kld_nats == pytest.approx([-math.log1p(vocabulary * math.exp(-16))] * 2, rel=1e-3)
    reply = diverged(
        nats=tuple(found.nats.tolist()),
        reference_nats=tuple(found.reference_nats.tolist()),
        kld_nats=tuple(found.kld_nats.tolist()),
        reverse_kld_nats=tuple(found.reverse_kld_nats.tolist()),
    )
    assert isinstance(outcome(reply, replace(TEXT, stored=True)), Divergence)
    assert outcome(diverged(kld_nats=(-0.2, 0.0)), replace(TEXT, stored=True)) == Ungraded(
        why="scored token 0: got `-0.2` kld_nats, expected a number of at least 0"
    )


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"nats": (1.0,)}, "got 1 scored tokens in `nats`, expected 2"),
        ({"kld_nats": (1.0, 1.0, 1.0)}, "got 3 scored tokens in `kld_nats`, expected 2"),
        ({"same_top": (True,)}, "got 1 likeliest tokens and 0 pieces, expected 2 and 0"),
        ({"pieces": ("a", "b")}, "got 2 likeliest tokens and 2 pieces, expected 2 and 0"),
        (
            {"kld_nats": (0.0, math.nan)},
            "scored token 1: got `nan` kld_nats, expected a number of at least 0",
        ),
        ({"nats": (-0.5, 1.0)}, "scored token 0: got `-0.5` nats, expected a number of at least 0"),
        (
            {"reverse_kld_nats": (math.inf, 0.0)},
            "scored token 0: got `inf` reverse_kld_nats, expected a number of at least 0",
        ),
        (
            {"kld_nats": (-0.001, 0.0)},
            "scored token 0: got `-0.001` kld_nats, expected a number of at least 0",
        ),
    ],
)
def test_numbers_that_cannot_be_are_not_graded(changes: dict[str, object], why: str) -> None:
    assert outcome(diverged(**changes)) == Ungraded(why=why)


def test_sixteen_bits_may_show_less_than_nothing() -> None:
    below = diverged(kld_nats=(-0.001, 0.0), reference_nats=(-0.0001, 1.0))
    assert isinstance(outcome(below, replace(TEXT, stored=True)), Divergence)
    assert isinstance(outcome(diverged(kld_nats=(-0.1, 0.0)), replace(TEXT, stored=True)), Ungraded)


FEW = replace(TEXT, stored=True, stored_tokens=9)


def test_of_the_likeliest_tokens_alone_what_is_missing_is_kept_too() -> None:
    graded = outcome(diverged(kld_slack_nats=(0.5, 0.0)), FEW)
    assert isinstance(graded, Divergence)
    assert graded.kld_slack_nats == (0.5, 0.0)
    # The reference's own job is held against itself.
    assert isinstance(outcome(diverged(), FEW), Divergence)


@pytest.mark.parametrize(
    "slack, params, why",
    [
        ((0.5, 0.0), TEXT, "got 2 bounds of what is missing of a divergence"),
        ((0.5,), FEW, "got 1 bounds of what is missing of a divergence"),
        ((0.5, -0.1), FEW, "a bound of what is missing of a divergence is no number of at least 0"),
        ((0.5, math.nan), FEW, "a bound of what is missing of a divergence is no number of at least 0"),
    ],
)
def test_bounds_that_cannot_be_are_not_graded(slack: tuple[float, ...], params: Params, why: str) -> None:
    assert outcome(diverged(kld_slack_nats=slack), params) == Ungraded(why=why)


def test_in_float32_less_than_nothing_is_rounding_alone() -> None:
    assert isinstance(outcome(diverged(kld_nats=(-0.001, 0.0)), FEW), Ungraded)
    assert isinstance(outcome(diverged(kld_nats=(-0.00001, 0.0)), FEW), Divergence)


@pytest.mark.parametrize(
    "reply, failed",
    [
        (Failed(why="no memory"), "no memory"),
        (Scored(nats=(1.0,)), "the engine answered something else: expected divergences from a reference"),
        (
            Completed(text="x", tokens=(1,), ending="eos", prompt_tokens=1),
            "the engine answered something else: expected divergences from a reference",
        ),
    ],
)
def test_without_divergences_there_is_no_answer(reply: Reply, failed: str) -> None:
    play = kld.ask(an_item(), TEXT)
    next(play)
    with pytest.raises(StopIteration) as stop:
        play.send(reply)
    assert stop.value.value == Answer(failed=failed)
    assert kld.grade(an_item(), Answer(), TEXT) == Ungraded(why="got no divergences")


def test_recorded_divergences_play_back() -> None:
    assert play_back(kld.ask(an_item(), TEXT), (diverged(),)) == Answer(diverged=diverged())


def test_there_are_no_trials() -> None:
    assert kld.trials((an_item(),), TEXT) == ()


numbers = st.lists(st.floats(), min_size=2, max_size=2).map(tuple)


@given(numbers, numbers, numbers, st.booleans())
def test_any_numbers_give_an_outcome_that_is_finite(
    nats: tuple[float, ...],
    reference: tuple[float, ...],
    apart: tuple[float, ...],
    stored: bool,  # noqa: FBT001
) -> None:
    reply = diverged(nats=nats, reference_nats=reference, kld_nats=apart)
    match outcome(reply, replace(TEXT, stored=stored)):
        case Divergence():
            assert all(map(math.isfinite, (*nats, *reference, *apart)))
            assert min(nats) >= 0
        case other:
            assert isinstance(other, Ungraded)
