"""The grader choice: marked labels, whole replies, labels that stand alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.choice import Choice

NONE = Unparsable(why="no label in the reply")
YES_NO = Choice(labels=("yes", "no"), ignore_case=True)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("B", "B"),
        ("b", "B"),
        ("(b).", "B"),
        ("**B**", "B"),
        ("B) Paris", "B"),
        ("B. It is Paris", "B"),
        ("Answer: B", "B"),
        ("answer is B", "B"),
        ("**Answer:** (B)", "B"),
        ("The answer is: $\\boxed{C}$", "C"),
        ("ANSWER = c", "C"),
        ("Answer: A\nNo. Answer: D", "D"),
        ("A or B? Answer:\n\nB", "B"),
        ("The correct option is C.", "C"),
        ("C because of A cat", "C"),
        ("A is right", "A"),
        ("B, and B again", "B"),
        ("答案是 C", "C"),
    ],
)
def test_labels_are_read(text: str, expected: str) -> None:
    assert Choice().grade(text, expected) == Right()


@pytest.mark.parametrize(
    "grader, text, expected, outcome",
    [
        (Choice(), "", "A", NONE),
        (Choice(), "A cat sat there", "A", NONE),
        (Choice(), "ABBA, B52 and D's", "B", NONE),
        (Choice(), "vitamin b", "B", NONE),
        (Choice(), "C", "A", Wrong(why="got `C`, expected `A`")),
        (Choice(), "A) x B) y", "A", Unparsable(why="several labels in the reply: `A`, `B`")),
        (Choice(unmarked="first"), "A) x B) y", "A", Right()),
        (Choice(unmarked="last"), "A) x B) y", "B", Right()),
        (Choice(unmarked="none"), "it is B", "B", NONE),
        (Choice(unmarked="none"), "Answer: B", "B", Right()),
        (Choice(markers=()), "Answer: B", "B", Right()),
        (Choice(markers=("final",)), "Answer: A, final: B", "B", Right()),
        (Choice(), "unanswer: A, B", "B", Unparsable(why="several labels in the reply: `A`, `B`")),
        (
            Choice(),
            "the answer isn't A, it's B",
            "B",
            Unparsable(why="several labels in the reply: `A`, `B`"),
        ),
        (Choice(), "answer: Apple", "A", NONE),
        (YES_NO, "Yes, it is", "yes", Right()),
        (YES_NO, "NO", "yes", Wrong(why="got `no`, expected `yes`")),
        (YES_NO, "I do not know", "no", NONE),
        (Choice(labels=("1", "10")), "answer: 10", "10", Right()),
    ],
)
def test_outcomes(grader: Choice, text: str, expected: object, outcome: Outcome) -> None:
    assert grader.refusal(expected) == ""
    assert grader.grade(text, expected) == outcome


def test_an_expected_label_is_one_of_the_labels() -> None:
    assert Choice(labels=("x", "y")).refusal("z") == "expected one of the labels `x` or `y`"
    assert Choice(labels=("x", "y")).refusal(["x"]) == "expected one of the labels `x` or `y`"


@pytest.mark.parametrize(
    "labels, why",
    [
        (("a", "A"), "two labels are the same but for case"),
        (("a", "b "), "a label starts or ends with a space or a punctuation mark"),
        (("(a)", "(b)"), "a label starts or ends with a space or a punctuation mark"),
    ],
)
def test_labels_must_be_told_apart(labels: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError) as caught:
        Choice(labels=labels)
    assert str(caught.value) == why


def test_a_letter_that_folds_to_two_is_no_label() -> None:
    assert Choice(labels=("i", "x"), ignore_case=True).grade("this: \u0130", "i") == NONE


@pytest.mark.parametrize(
    "piece", ["answer", "answer: ", "answer " + " " * 90, "A ", "A. ", "(", "answer is is "]
)
def test_long_hostile_text_ends(piece: str) -> None:
    assert isinstance(Choice().grade(piece * (2_000_000 // len(piece)), "B"), Wrong | Unparsable)


graders = st.sampled_from(
    [Choice(), YES_NO, Choice(unmarked="none"), Choice(labels=("red", "dark red", "RED-1"), unmarked="last")]
)


@given(graders.flatmap(lambda grader: st.tuples(st.just(grader), st.sampled_from(grader.labels))))
def test_the_derived_gold_passes_and_the_bad_does_not(pair: tuple[Choice, str]) -> None:
    grader, expected = pair
    gold, bad = grader.gold(expected), grader.bad(expected)
    assert gold is not None
    assert bad is not None
    assert grader.grade(gold, expected) == Right()
    assert isinstance(grader.grade(bad, expected), Wrong)


@given(
    graders,
    st.text() | st.lists(st.sampled_from(["answer", " is ", ": ", "A", "yes", "red", "*"])).map("".join),
)
def test_any_text_has_an_outcome(grader: Choice, text: str) -> None:
    assert isinstance(grader.grade(text, grader.labels[0]), Right | Wrong | Unparsable)
