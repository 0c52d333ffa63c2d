from typing import Literal

import pytest

from qlock.core import stats
from qlock.core.gates import Gate, judge, pairs_in
from qlock.core.pairs import pair
from qlock.core.spec import GateSpec
from qlock.core.stats import CannotTell, PairsNeeded
from tests.fakes.comparisons import a_reading, a_sitting

Rule = Literal["non-inferior", "no-more-errors"]


def judged(a: str, b: str, rule: Rule = "non-inferior", *, margin: float = 0.05, slice_: str = "") -> Gate:
    spec = GateSpec(suite="orders", slice=slice_, rule=rule, margin_share=margin)
    return judge(spec, pair((a_sitting(a),), (a_sitting(b),)))


def test_b_passes_when_the_whole_interval_lies_above_the_margin() -> None:
    found = judged("r" * 200, "r" * 200)
    assert found == Gate(
        suite="orders",
        slice="",
        rule="non-inferior",
        margin_share=0.05,
        verdict="pass",
        why="",
        pairs=200,
        errors_a=0,
        errors_b=0,
        difference=stats.newcombe_paired(both=200, only_a=0, only_b=0, neither=0),
        needed=PairsNeeded(verdict="pass", pairs=200, more=0),
    )


def test_b_fails_when_the_whole_interval_lies_below_the_margin() -> None:
    found = judged("r" * 200, "r" * 140 + "w" * 60)
    assert (found.verdict, found.errors_b) == ("fail", 60)


def test_an_interval_that_holds_the_margin_says_how_many_pairs_would_decide() -> None:
    found = judged("r" * 50 + "w" * 10, "r" * 48 + "ww" + "w" * 10)
    assert (found.verdict, found.why) == ("undecided", "the interval holds the margin")
    assert found.needed == stats.pairs_to_decide(both=48, only_a=2, only_b=0, neither=10, margin_share=0.05)
    assert isinstance(found.needed, PairsNeeded)
    assert found.needed.more > 0


def test_too_few_pairs_are_undecided() -> None:
    assert judged("r" * 9, "w" * 9).why == (
        "`9` independent pairs are too few for a verdict, which needs at least `10`"
    )


def test_lost_items_that_could_change_it_leave_it_undecided() -> None:
    assert judged("r" * 200, "r" * 199 + ".").verdict == "pass"
    found = judged("r" * 200, "r" * 192 + "." * 8)
    assert (found.verdict, found.why) == ("undecided", "8 items are in no scored pair and could change it")


def test_above_one_in_twenty_lost_items_nothing_is_judged() -> None:
    found = judged("r" * 200, "w" * 180 + "." * 20)
    assert (found.verdict, found.why) == ("undecided", "more than 5% of the items are in no scored pair")


def test_shares_of_a_mark_are_judged_by_their_interval() -> None:
    better = judged("h" * 12 + "w" * 28, "r" * 12 + "w" * 28)
    assert (better.verdict, better.needed) == (
        "pass",
        CannotTell(why="the number of pairs is worked out for right and wrong alone"),
    )
    assert judged("r" * 12 + "w" * 28, "h" * 12 + "w" * 28).verdict == "fail"
    lost = judged("h" * 12 + "w" * 48, "r" * 12 + "w" * 45 + "...", margin=0.0)
    assert lost.verdict == "pass"
    lost = judged("h" * 4 + "w" * 56, "r" * 4 + "w" * 53 + "...", margin=0.0)
    assert (lost.verdict, lost.why) == ("undecided", "3 items are in no scored pair and could change it")


@pytest.mark.parametrize(
    "a, b, margin, verdict, why",
    [
        ("rrrw", "rrwr", 0.0, "pass", "1 errors against 1"),
        ("rrrr", "rrrw", 0.0, "fail", "1 errors against 0"),
        ("rrrr", "rrrw", 0.25, "pass", "1 errors against 0"),
        ("rrrr", "rrru", 0.0, "fail", "1 errors against 0"),
        ("rrrr", "rrrh", 0.0, "fail", "1 errors against 0"),
        ("r" * 40, "r" * 39 + ".", 0.0, "undecided", "1 items are in no scored pair and could change it"),
        (
            "r" * 39 + "w",
            "r" * 39 + ".",
            0.0,
            "undecided",
            "1 items are in no scored pair and could change it",
        ),
        ("r" * 38 + "ww", "r" * 38 + "r.", 0.0, "pass", "0 errors against 1"),
    ],
)
def test_no_more_errors_counts_these_very_items(
    a: str, b: str, margin: float, verdict: str, why: str
) -> None:
    found = judged(a, b, "no-more-errors", margin=margin)
    assert (found.verdict, found.why) == (verdict, why)
    assert found.needed == CannotTell(why="the rule counts these very items")


@pytest.mark.parametrize("slice_", ["bank=north", "north"])
def test_a_slice_is_named_in_full_or_by_its_value(slice_: str) -> None:
    found = judged("r" * 40, "rw" * 20, "no-more-errors", slice_=slice_)
    assert (found.slice, found.pairs, found.errors_b, found.verdict) == (slice_, 20, 0, "pass")
    assert judged("r" * 40, "rw" * 20, "no-more-errors", slice_="south").errors_b == 20


def test_an_unknown_slice_is_undecided() -> None:
    found = judged("r" * 40, "r" * 40, slice_="west\x1b")
    assert found.slice == "west\\x1b"
    assert (found.verdict, found.why) == ("undecided", "no scored pair lies in the slice `west\\x1b`")


def test_a_value_of_two_slices_is_undecided() -> None:
    pairs = pair((a_sitting("r" * 4),), (a_sitting("r" * 4),)).scored
    for one in pairs:
        one.a.row.slices["side"] = one.a.row.slices["bank"]
    assert pairs_in(pairs, "north") == "the slice `north` could be any of bank=north, side=north"


def test_a_suite_that_is_not_on_both_sides_is_undecided() -> None:
    found = judge(GateSpec(suite="orders", rule="non-inferior"), None)
    assert (found.verdict, found.why) == ("undecided", "the suite `orders` is not on both sides")


def test_text_has_no_right_and_wrong() -> None:
    pairing = pair((a_reading([1.0] * 20),), (a_reading([1.0] * 20),))
    found = judge(GateSpec(suite="wikitext", rule="non-inferior"), pairing)
    assert (found.verdict, found.why) == ("undecided", "the suite has no right and wrong")


def test_what_may_not_be_judged_is_not() -> None:
    pairing = pair((a_sitting("r" * 40),), (a_sitting("w" * 40),))
    found = judge(GateSpec(suite="orders", rule="no-more-errors"), pairing, withheld="it is invalid")
    assert (found.verdict, found.why) == ("undecided", "it is invalid")


def test_without_pairs_no_errors_are_none_too_few() -> None:
    found = judge(GateSpec(suite="orders", rule="no-more-errors"), pair((), ()))
    assert (found.verdict, found.why) == ("undecided", "there are no pairs")
