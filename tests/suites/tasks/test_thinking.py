"""Thinking is cut before grading, alike whether it stands in the reply or was separated before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Unparsable
from qlock.suites.tasks.thinking import Thinking, final_answer

UNFINISHED = Unparsable(why="thinking did not end")


@pytest.mark.parametrize(
    "text, final",
    [
        ("Paris", "Paris"),
        ("<think>hm</think>\n\nParis", "Paris"),
        ("<think></think>Paris", "Paris"),
        ("hm, so</think>\nParis", "Paris"),
        ("<think>a</think>x<think>b</think>Paris", "Paris"),
        ("<think>a</think>", ""),
        ("<think>a", UNFINISHED),
        ("<think>a</think>Paris<think>or", UNFINISHED),
        ("  Paris ", "  Paris "),
    ],
)
def test_the_default_rule(text: str, final: str | Unparsable) -> None:
    assert final_answer(text, Thinking()) == final


def test_other_tags() -> None:
    rule = Thinking(open="[THINK]", close="[/THINK]")
    assert final_answer("[THINK]a[/THINK] b", rule) == "b"
    assert final_answer("<think>a", rule) == "<think>a"


def test_where_the_template_opens_a_reply_without_an_end_is_all_thinking() -> None:
    rule = Thinking(opened_by_template=True)
    assert final_answer("so Paris or", rule) == UNFINISHED
    assert final_answer("so</think>Paris", rule) == "Paris"
    assert final_answer("</think>Paris", rule) == "Paris"


def test_without_cutting_the_reply_is_graded_as_it_is() -> None:
    assert final_answer("<think>a</think>b", Thinking(cut=False)) == "<think>a</think>b"


tagless = st.text().filter(lambda text: "think>" not in text)


@given(tagless, tagless.map(str.lstrip), st.sampled_from(["", "\n", "\n\n", " "]))
def test_inline_and_separated_give_the_same_answer(thought: str, answer: str, space: str) -> None:
    separated = final_answer(answer, Thinking())
    assert final_answer(f"<think>{thought}</think>{space}{answer}", Thinking()) == separated
    assert final_answer(f"{thought}</think>{space}{answer}", Thinking()) == separated


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " "]) | st.text(max_size=3)).map("".join))
def test_no_tag_is_left_in_an_answer(text: str) -> None:
    final = final_answer(text, Thinking())
    assert isinstance(final, Unparsable) or ("<think>" not in final and "</think>" not in final)
