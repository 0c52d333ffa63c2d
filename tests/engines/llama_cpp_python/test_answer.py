from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.digest import blake3_of
from qlock.engines.interface import Broken, Generate, Generated
from qlock.engines.llama_cpp_python.answer import Answer
from tests.fakes.decoder import GREEDY

END = 0
ROOM = 1000


def answered(
    pieces: Sequence[bytes | None],
    *,
    stop: tuple[str, ...] = (),
    prompt_tokens: int = 1,
    context_tokens: int = ROOM,
    answer_tokens: int = 100,
    ignore_eos: bool = False,
) -> Generated:
    """The answer of a model that says these pieces one after the other; ``None`` is the end token."""
    sampling = msgspec.structs.replace(GREEDY, stop=stop, answer_tokens=answer_tokens, ignore_eos=ignore_eos)
    work = Generate(id="a", tokens=(1,) * prompt_tokens, sampling=sampling, logprobs=True, logits_digest=True)
    said = [b"</s>", *(piece for piece in pieces if piece is not None)]
    answer = Answer(work, said.__getitem__, end_tokens={END}, context_tokens=context_tokens)
    token = 0
    for piece in pieces:
        if answer.is_over:
            break
        token += piece is not None
        logits = np.zeros(len(said) + 1, dtype=np.float32)
        logits[END if piece is None else token] = 9.0
        answer.take(logits)
    done = answer.done(prefill_s=1.0, decode_s=2.0)
    assert isinstance(done, Generated)
    return done


def test_the_end_token_ends_and_is_not_part_of_the_answer() -> None:
    done = answered([b"a", b"b", None])
    assert (done.tokens, done.text, done.ending, done.why) == ((1, 2), "ab", "eos", "")
    assert len(done.logprobs) == 2
    assert (done.prefill_s, done.decode_s) == (1.0, 2.0)


def test_an_end_token_that_is_ignored_is_a_token_like_others() -> None:
    done = answered([b"a", None, b"b"], ignore_eos=True, answer_tokens=3)
    assert (done.tokens, done.text, done.ending) == ((1, END, 2), "a</s>b", "budget")


def test_the_budget_ends() -> None:
    done = answered([b"a", b"b", b"c"], answer_tokens=2)
    assert (done.tokens, done.text, done.ending) == ((1, 2), "ab", "budget")


def test_no_budget_is_no_token() -> None:
    done = answered([b"a"], answer_tokens=0)
    assert (done.tokens, done.text, done.ending) == ((), "", "budget")
    assert done.logits_digest == blake3_of(b"")


def test_a_full_context_ends_after_the_budget_had_its_say() -> None:
    full = answered([b"a", b"b", b"c"], prompt_tokens=8, context_tokens=10)
    assert (full.text, full.ending) == ("ab", "context")
    assert full.why == "prompt and answer fill the context of `10` tokens"
    assert answered([b"a", b"b"], prompt_tokens=8, context_tokens=10, answer_tokens=2).ending == "budget"


def test_a_prompt_as_long_as_the_context_leaves_no_room() -> None:
    done = answered([b"a"], prompt_tokens=10, context_tokens=10)
    assert (done.tokens, done.ending) == ((), "context")
    assert done.why == "a prompt of `10` tokens leaves no room in a context of `10`"


@pytest.mark.parametrize(
    "pieces, stop, text, tokens",
    [
        ([b"x", b"END", b"y"], ("END",), "x", 2),
        ([b"xE", b"N", b"Dy", b"z"], ("END",), "x", 3),
        ([b"END"], ("END",), "", 1),
        ([b"aab", b"c"], ("aab", "ab"), "", 1),
        ([b"a\n", b"\n", b"b"], ("\n\n",), "a", 2),
        ([b"xyz"], ("z", "y"), "x", 1),
        ([b"a", b"b", b"c"], (), "abc", 3),
    ],
)
def test_a_stop_text_ends_the_answer_and_is_cut_off(
    pieces: list[bytes], stop: tuple[str, ...], text: str, tokens: int
) -> None:
    done = answered(pieces, stop=stop, answer_tokens=len(pieces))
    assert (done.text, len(done.tokens)) == (text, tokens)
    assert done.ending == ("stop" if stop else "budget")


def test_the_stop_text_that_matched_is_said() -> None:
    done = answered([b"xyz"], stop=("z", "y"))
    assert (done.text, done.why) == ("x", "y")


def test_a_stop_text_wins_over_a_budget_that_ends_with_it() -> None:
    assert answered([b"a", b"END"], stop=("END",), answer_tokens=2).ending == "stop"


def test_a_stop_text_inside_the_prompt_stops_nothing() -> None:
    assert answered([b"b"], stop=("",), answer_tokens=1).ending == "budget"


def test_characters_of_several_bytes_are_whole_across_tokens() -> None:
    word = "größe 🦙 漢"
    done = answered([bytes([byte]) for byte in word.encode()], answer_tokens=len(word.encode()))
    assert done.text == word


def test_a_stop_text_of_several_bytes_is_found_across_tokens() -> None:
    done = answered([b"a\xf0", b"\x9f", b"\xa6\x99", b"b"], stop=("🦙",))
    assert (done.text, len(done.tokens)) == ("a", 3)


def test_bytes_that_are_no_utf_8_are_replaced_in_the_text_alone() -> None:
    done = answered([b"a\xff", b"\xf0\x9f"], answer_tokens=2)
    assert done.text == "a��"


def test_logits_that_are_not_finite_break_the_answer() -> None:
    work = Generate(id="a", tokens=(1,), sampling=GREEDY, logprobs=False, logits_digest=False)
    for bad in (np.nan, np.inf, -np.inf):
        answer = Answer(work, lambda _: b"", end_tokens=set(), context_tokens=9)
        answer.take(np.array([0.0, bad], dtype=np.float32))
        assert answer.is_over
        assert answer.done(prefill_s=0, decode_s=0) == Broken(id="a", why="logits are not finite at step `0`")


def test_the_digest_is_over_the_bytes_of_every_step() -> None:
    work = Generate(
        id="a",
        tokens=(1,),
        sampling=msgspec.structs.replace(GREEDY, answer_tokens=2),
        logprobs=False,
        logits_digest=True,
    )
    answer = Answer(work, lambda _: b"", end_tokens=set(), context_tokens=9)
    steps = [np.array(values, dtype="<f4") for values in ([0.5, 1.5], [2.5, 0.25])]
    for logits in steps:
        answer.take(logits)
    done = answer.done(prefill_s=0, decode_s=0)
    assert isinstance(done, Generated)
    assert (done.tokens, done.logits_digest) == ((1, 0), blake3_of(b"".join(map(bytes, steps))))
    assert done.logprobs == ()


texts = st.text(alphabet="aé🦙\n", max_size=12)


@given(texts, st.lists(texts.filter(bool), max_size=3), st.data())
def test_text_and_ending_do_not_depend_on_how_the_bytes_are_cut_into_tokens(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    whole = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(whole) - 1)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
    done = answered([*pieces, None], stop=tuple(stop))
    places = [text.find(one) for one in stop if one in text]
    if len(pieces) == 1 or not places:
        assert done.text == text[: min(places, default=len(text))]
    else:
        # The first stop text to be *complete* ends the answer, whatever would have begun before it.
        ends = {text[: text.find(one)] for one in stop if one in text}
        assert done.text in ends
    assert done.ending == ("stop" if places else "eos")
