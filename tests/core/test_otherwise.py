"""Jobs of one digest that were answered otherwise, and what nobody can hold against a run."""

import msgspec
import pytest

from qlock.core.compare import compare
from qlock.core.differing import Found
from qlock.core.otherwise import otherwise
from qlock.core.record import answers_digest
from qlock.core.sides import Side
from tests.fakes.comparisons import a_plain_lock, a_reading, a_side, a_sitting, an_answer, varying, with_first

replace = msgspec.structs.replace
WHY = "the same pins, and yet it computed otherwise"


def test_other_answers_under_one_digest_are_told_once_with_the_first_item() -> None:
    assert list(otherwise(a_side("rrrr"), a_side("rwrw"))) == [
        Found(
            path="suite.orders.answers.1",
            topic="answers",
            a=answers_digest((an_answer("r", 2),)),
            b=answers_digest((an_answer("w", 2),)),
            why=f"{WHY}: 2 of 4 answers, the first of them `item-0002`",
        )
    ]


def test_what_a_text_costs_is_an_answer_too() -> None:
    a = a_side(sittings={"wikitext": (a_reading([300.0, 301.0]),)})
    b = a_side(sittings={"wikitext": (a_reading([300.0, 301.5]),)})
    (found,) = otherwise(a, b)
    assert (found.path, found.why) == (
        "suite.wikitext.answers.1",
        f"{WHY}: 1 of 2 answers, the first of them `window-0002`",
    )


def test_every_repeat_is_held_against_its_own() -> None:
    a = a_side(sittings={"orders": (a_sitting("rr"), a_sitting("rw", repeat=2))})
    b = a_side(sittings={"orders": (a_sitting("rr"), a_sitting("ww", repeat=2))})
    assert [one.path for one in otherwise(a, b)] == ["suite.orders.answers.2"]
    assert list(otherwise(a, a)) == []


ELSEWHERE = with_first(a_plain_lock(), setting={"threads": 7})
UNPROVED = with_first(a_plain_lock(), point={"prompts": msgspec.UNSET})


@pytest.mark.parametrize(
    "a, b",
    [
        (a_side("rr"), a_side("ww", model="Q4_K_M")),
        (a_side("rr"), a_side("ww", lock=ELSEWHERE)),
        (a_side("rr", lock=UNPROVED), a_side("ww", lock=UNPROVED)),
        (a_side("rr", lock=varying(a_plain_lock())), a_side("ww", lock=varying(a_plain_lock()))),
        (a_side("rr"), a_side("ww", lock=varying(a_plain_lock()))),
        (a_side("rr"), a_side("ee")),
        (a_side("rr"), a_side("..")),
    ],
    ids=["other model", "other setting", "unproved", "both vary", "one varies", "failed", "absent"],
)
def test_nothing_is_said_where_the_answers_may_differ(a: Side, b: Side) -> None:
    assert list(otherwise(a, b)) == []


def test_another_item_under_one_digest_cannot_be_either() -> None:
    a = a_side("r")
    row = replace(an_answer("r", 1), item_digest=an_answer("r", 2).item_digest)
    (found,) = otherwise(a, replace(a, sittings={"orders": (a_sitting("r", rows=(row,)),)}))
    assert found.why == f"{WHY}: 1 of 1 answers, the first of them `item-0001`"


def test_a_comparison_of_such_runs_is_invalid() -> None:
    found = compare(a_side("rrrr"), a_side("rrww"))
    head_a, head_b = (answers_digest((an_answer(letter, 3),))[:19] for letter in "rw")
    assert (found.state, found.why) == (
        "invalid",
        (
            (
                f"fatal: suite.orders.answers.1: A has `{head_a}…`, B has `{head_b}…` "
                f"({WHY}: 2 of 4 answers, the first of them `item-0003`)"
            ),
        ),
    )


def test_a_repeat_given_as_noise_that_moves_is_no_noise_where_points_are_bitwise() -> None:
    a, b = a_side("rrrr"), a_side("rrww", model="Q4_K_M")
    assert compare(a, b, again_a=a, again_b=b).state == "valid"
    shaken = compare(a, b, again_a=a_side("rrrw"), again_b=a_side("wrww", model="Q4_K_M"))
    assert shaken.state == "invalid"
    assert [(one.path, one.standing) for one in shaken.difference if one.topic == "answers"] == [
        ("noise.a.suite.orders.answers.1", "fatal"),
        ("noise.b.suite.orders.answers.1", "fatal"),
    ]


def test_where_points_vary_the_same_is_noise() -> None:
    lock = varying(a_plain_lock())
    a, b = a_side("rrrr", lock=lock), a_side("rrww", model="Q4_K_M", lock=lock)
    found = compare(a, b, again_a=a_side("rrrw", lock=lock))
    assert (found.state, found.suite[1].noise[0].value) == ("valid", 0.25)
