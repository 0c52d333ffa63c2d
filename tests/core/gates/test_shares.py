import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import stats
from qlock.core.gates import Gate, PairsSeen
from qlock.core.gates.shares import judge, pairs_in
from qlock.core.pairs import pair
from qlock.core.rules import AgreementShare, EndingShare, NoMoreErrors, NonInferior, ShareSpec
from qlock.core.sides import Sitting
from qlock.core.stats import CannotTell, Interval, PairedMarks, PairsNeeded
from tests.fakes.comparisons import a_reading, a_sitting

Rule = type[NonInferior] | type[NoMoreErrors] | type[EndingShare] | type[AgreementShare]
RULES: tuple[Rule, ...] = (NonInferior, NoMoreErrors, EndingShare, AgreementShare)


def judged(a: str, b: str, rule: Rule = NonInferior, *, margin: float = 0.05, slice_: str = "") -> Gate:
    spec: ShareSpec = rule(suite="orders", slice=slice_, margin_share=margin)
    return judge(spec, pair((a_sitting(a),), (a_sitting(b),)))


def seen(gate: Gate) -> PairsSeen:
    assert isinstance(gate.seen, PairsSeen)
    return gate.seen


def counts(both: int, only_a: int, only_b: int, neither: int) -> PairedMarks:
    return stats.marks_of_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)


def test_b_passes_when_the_whole_interval_lies_above_the_margin() -> None:
    found = judged("r" * 200, "r" * 200)
    assert found == Gate(
        asked=NonInferior(suite="orders", margin_share=0.05),
        verdict="pass",
        why="",
        seen=PairsSeen(
            pairs=200,
            errors_a=0,
            errors_b=0,
            difference=stats.paired_interval(counts(200, 0, 0, 0)),
            needed=PairsNeeded(verdict="pass", pairs=200, more=0),
            noise_share=CannotTell(why="no point was run twice"),
        ),
    )


def test_b_fails_when_the_whole_interval_lies_below_the_margin() -> None:
    found = judged("r" * 200, "r" * 140 + "w" * 60)
    assert (found.verdict, seen(found).errors_b) == ("fail", 60)


def test_an_interval_that_holds_the_margin_says_how_many_pairs_would_decide() -> None:
    found = judged("r" * 50 + "w" * 10, "r" * 48 + "ww" + "w" * 10)
    assert (found.verdict, found.why) == ("undecided", "the interval holds the margin")
    assert seen(found).needed == stats.pairs_to_decide(counts(48, 2, 0, 10), margin_share=0.05)
    needed = seen(found).needed
    assert isinstance(needed, PairsNeeded)
    assert needed.more > 0


def test_too_few_pairs_are_undecided() -> None:
    assert judged("r" * 9, "w" * 9).why == ("a verdict needs 10 independent pairs, got 9")


def test_lost_items_that_could_change_it_leave_it_undecided() -> None:
    assert judged("r" * 200, "r" * 199 + ".").verdict == "pass"
    found = judged("r" * 200, "r" * 192 + "." * 8)
    assert (found.verdict, found.why) == ("undecided", "8 items in no pair could change it")


def test_above_one_in_twenty_lost_items_nothing_is_judged() -> None:
    found = judged("r" * 200, "w" * 180 + "." * 20)
    assert (found.verdict, found.why) == ("undecided", "more than 5% of the items are in no scored pair")


def test_shares_of_a_mark_are_judged_by_their_interval() -> None:
    better = judged("h" * 12 + "w" * 28, "r" * 12 + "w" * 28)
    assert (better.verdict, seen(better).needed) == ("pass", PairsNeeded(verdict="pass", pairs=40, more=0))
    marks = stats.paired_marks([0.5] * 12 + [0.0] * 28, [1.0] * 12 + [0.0] * 28)
    assert seen(better).difference == stats.paired_interval(marks)
    assert judged("r" * 20 + "w" * 20, "h" * 20 + "w" * 20).verdict == "fail"
    lost = judged("h" * 20 + "w" * 40, "r" * 20 + "w" * 38 + "..", margin=0.0)
    assert lost.verdict == "pass"
    lost = judged("h" * 12 + "w" * 48, "r" * 12 + "w" * 45 + "...", margin=0.0)
    assert (lost.verdict, lost.why) == ("undecided", "3 items in no pair could change it")


@pytest.mark.parametrize(
    "a, b, margin, verdict, why",
    [
        ("rrrw", "rrwr", 0.0, "pass", "1 error against 1"),
        ("rrrr", "rrrw", 0.0, "fail", "1 error against 0"),
        ("rrrr", "rrrw", 0.25, "pass", "1 error against 0"),
        ("rrrr", "rrru", 0.0, "fail", "1 error against 0"),
        ("rrrr", "rrrh", 0.0, "fail", "1 error against 0"),
        ("r" * 40, "r" * 39 + ".", 0.0, "undecided", "1 item in no pair could change it"),
        (
            "r" * 39 + "w",
            "r" * 39 + ".",
            0.0,
            "undecided",
            "1 item in no pair could change it",
        ),
        ("r" * 38 + "ww", "r" * 38 + "r.", 0.0, "pass", "0 errors against 1"),
    ],
)
def test_no_more_errors_counts_these_very_items(
    a: str, b: str, margin: float, verdict: str, why: str
) -> None:
    found = judged(a, b, NoMoreErrors, margin=margin)
    assert (found.verdict, found.why) == (verdict, why)
    assert seen(found).needed == CannotTell(why="the rule counts these very items")


@pytest.mark.parametrize("slice_", ["bank=north", "north"])
def test_a_slice_is_named_in_full_or_by_its_value(slice_: str) -> None:
    found = judged("r" * 40, "rw" * 20, NoMoreErrors, slice_=slice_)
    assert isinstance(found.asked, NoMoreErrors)
    assert (found.asked.slice, seen(found).pairs, seen(found).errors_b, found.verdict) == (
        slice_,
        20,
        0,
        "pass",
    )
    assert seen(judged("r" * 40, "rw" * 20, NoMoreErrors, slice_="south")).errors_b == 20


def test_an_unknown_slice_is_undecided() -> None:
    found = judged("r" * 40, "r" * 40, slice_="west\x1b")
    assert isinstance(found.asked, NonInferior)
    assert found.asked.slice == "west\\x1b"
    assert (found.verdict, found.why) == ("undecided", "no scored pair lies in the slice `west\\x1b`")


def test_a_value_of_two_slices_is_undecided() -> None:
    pairs = pair((a_sitting("r" * 4),), (a_sitting("r" * 4),)).scored
    for one in pairs:
        one.a.row.slices["side"] = one.a.row.slices["bank"]
    assert pairs_in(pairs, "north") == "the slice `north` could be any of bank=north, side=north"


def test_text_has_no_right_and_wrong() -> None:
    pairing = pair((a_reading([1.0] * 20),), (a_reading([1.0] * 20),))
    found = judge(NonInferior(suite="wikitext"), pairing)
    assert (found.verdict, found.why) == ("undecided", "the suite has no right and wrong")


def test_what_may_not_be_judged_is_not() -> None:
    pairing = pair((a_sitting("r" * 40),), (a_sitting("w" * 40),))
    found = judge(NoMoreErrors(suite="orders"), pairing, withheld="it is invalid")
    assert (found.verdict, found.why) == ("undecided", "it is invalid")


def test_without_pairs_no_errors_are_none_too_few() -> None:
    found = judge(NoMoreErrors(suite="orders"), pair((), ()))
    assert (found.verdict, found.why) == ("undecided", "there are no pairs")


def test_repeats_that_are_all_alike_say_no_more_than_one() -> None:
    def times(letters: str, repeats: int) -> tuple[Sitting, ...]:
        return tuple(a_sitting(letters, repeat=repeat) for repeat in range(1, repeats + 1))

    spec = NonInferior(suite="orders", margin_share=0.05)
    once = judge(spec, pair(times("r" * 60, 1), times("r" * 59 + "w", 1)))
    often = judge(spec, pair(times("r" * 60, 8), times("r" * 59 + "w", 8)))
    assert once.verdict == often.verdict == "undecided"
    assert (seen(often).pairs, seen(often).errors_b) == (480, 8)
    one, other = seen(once).difference, seen(often).difference
    assert isinstance(one, Interval)
    assert isinstance(other, Interval)
    assert other.low == pytest.approx(one.low, abs=0.002)


def test_replies_that_are_left_unfinished_are_counted_against_each_side() -> None:
    found = judged("r" * 195 + "b" * 5, "r" * 194 + "b" * 6, EndingShare)
    assert (found.verdict, found.why) == ("pass", "6 unfinished against 5")
    assert (seen(found).errors_a, seen(found).errors_b, seen(found).pairs) == (5, 6, 200)
    assert seen(found).difference == stats.paired_interval(counts(194, 1, 0, 5))
    worse = judged("r" * 200, "r" * 150 + "b" * 50, EndingShare)
    assert (worse.verdict, worse.why) == ("fail", "50 unfinished against 0")
    close = judged("r" * 40, "r" * 39 + "b", EndingShare)
    assert (close.verdict, close.why) == ("undecided", "the interval holds the margin")
    assert isinstance(seen(close).needed, PairsNeeded)


def test_a_full_context_and_an_error_are_unfinished_too_although_they_have_no_mark() -> None:
    found = judged("r" * 200, "r" * 140 + "c" * 30 + "e" * 30, EndingShare)
    assert (found.verdict, seen(found).errors_b, seen(found).pairs) == ("fail", 60, 200)


def test_items_without_a_row_could_have_ended_in_any_way() -> None:
    found = judged("r" * 200, "r" * 192 + "." * 8, EndingShare)
    assert (found.verdict, found.why) == ("undecided", "8 items in no pair could change it")
    found = judged("r" * 200, "r" * 180 + "." * 20, EndingShare)
    assert found.why == "more than 5% of the items are in no pair"


def test_repeats_that_end_otherwise_are_one_cluster() -> None:
    a = (a_sitting("r" * 40), a_sitting("r" * 40, repeat=2))
    b = (a_sitting("r" * 40), a_sitting("r" * 20 + "b" * 20, repeat=2))
    found = judge(EndingShare(suite="orders", margin_share=0.05), pair(a, b))
    items = [f"{number}" for number in range(40)] * 2
    marks = stats.paired_marks([1.0] * 80, [1.0] * 60 + [0.0] * 20, items)
    assert seen(found).difference == stats.paired_interval(marks)
    assert (found.verdict, seen(found).pairs) == ("fail", 80)


def test_answers_that_are_the_same_are_counted() -> None:
    found = judged("r" * 200, "r" * 198 + "ww", AgreementShare)
    assert (found.verdict, found.why, seen(found).errors_a, seen(found).errors_b) == (
        "pass",
        "198 of 200 answers the same",
        0,
        2,
    )
    share = stats.wilson(198, 200)
    assert isinstance(share, Interval)
    difference = seen(found).difference
    assert isinstance(difference, Interval)
    assert (difference.low, difference.high) == (share.low - 1, share.high - 1)
    other = judged("r" * 200, "r" * 150 + "w" * 50, AgreementShare)
    assert (other.verdict, other.why) == ("fail", "150 of 200 answers the same")
    assert judged("r" * 60, "r" * 58 + "ww", AgreementShare).why == "the interval holds the margin"


def test_a_failed_reply_agrees_with_nothing() -> None:
    assert seen(judged("r" * 20, "r" * 10 + "e" * 10, AgreementShare)).errors_b == 10


def test_answers_of_items_without_a_row_could_be_the_same_or_not() -> None:
    found = judged("r" * 200, "r" * 192 + "." * 8, AgreementShare)
    assert (found.verdict, found.why) == ("undecided", "8 items in no pair could change it")


def test_repeats_that_agree_otherwise_are_one_cluster() -> None:
    a = (a_sitting("r" * 40), a_sitting("r" * 40, repeat=2))
    b = (a_sitting("r" * 40), a_sitting("r" * 30 + "w" * 10, repeat=2))
    found = judge(AgreementShare(suite="orders", margin_share=0.05), pair(a, b))
    items = [f"{number}" for number in range(40)] * 2
    share, difference = stats.share_interval([1.0] * 70 + [0.0] * 10, items), seen(found).difference
    assert isinstance(share, Interval)
    assert isinstance(difference, Interval)
    assert (difference.low, difference.high) == (share.low - 1, share.high - 1)
    why = "the number of pairs is worked out for shares of both sides alone"
    assert seen(found).needed == CannotTell(why=why)


@pytest.mark.parametrize("rule", [EndingShare, AgreementShare])
def test_text_that_is_only_scored_has_no_endings_and_no_answers(rule: Rule) -> None:
    pairing = pair((a_reading([1.0] * 20),), (a_reading([1.0] * 20),))
    found = judge(rule(suite="wikitext"), pairing)
    assert (found.verdict, found.why) == ("undecided", "nothing is written in this suite")


def test_nobody_sat_it() -> None:
    for rule in (EndingShare, AgreementShare):
        found = judged("", "", rule)
        assert found.verdict == "undecided"
    assert (
        judged("r" * 20, "r" * 20, EndingShare, slice_="west").why
        == "no scored pair lies in the slice `west`"
    )


def beside_noise(b: str, moved: str, rule: Rule, margin: float = 0.05) -> Gate:
    """B judged against 200 right answers, of which another run gave these."""
    mine = (a_sitting("r" * 200),)
    spec = rule(suite="orders", margin_share=margin)
    return judge(spec, pair(mine, (a_sitting(b),)), again=[pair(mine, (a_sitting(moved),))])


@pytest.mark.parametrize("rule", [NonInferior, NoMoreErrors, EndingShare, AgreementShare])
def test_a_margin_under_the_noise_is_undecidable(rule: Rule) -> None:
    found = beside_noise("r" * 200, "r" * 188 + "b" * 12, rule)
    assert (found.verdict, seen(found).noise_share) == ("undecided", 0.06)
    assert found.why == "undecidable: the margin lies under the noise of 6.0 %"
    assert seen(found).needed == CannotTell(why="no number of items decides within the noise")


@pytest.mark.parametrize("rule", [NonInferior, NoMoreErrors, EndingShare, AgreementShare])
def test_what_is_worse_by_more_than_the_noise_still_fails(rule: Rule) -> None:
    assert beside_noise("r" * 120 + "b" * 80, "r" * 188 + "b" * 12, rule).verdict == "fail"
    assert beside_noise("r" * 182 + "b" * 18, "r" * 170 + "b" * 30, rule).verdict == "undecided"


@pytest.mark.parametrize("rule", [NonInferior, NoMoreErrors, EndingShare, AgreementShare])
def test_a_margin_above_the_noise_decides_as_ever(rule: Rule) -> None:
    quiet = beside_noise("r" * 200, "r" * 199 + "b", rule)
    assert (quiet.verdict, seen(quiet).noise_share) == ("pass", 0.005)
    assert seen(beside_noise("r" * 200, "r" * 200, rule, 0.0)).noise_share == 0.0


def test_another_run_without_the_suite_says_nothing_of_the_noise() -> None:
    mine = (a_sitting("r" * 40),)
    found = judge(NoMoreErrors(suite="orders"), pair(mine, mine), again=[pair(mine, ())])
    assert (found.verdict, seen(found).noise_share) == ("pass", CannotTell(why="no point was run twice"))


@given(st.text("rwbce.", min_size=1, max_size=40), st.text("rwbce.", min_size=1, max_size=40))
def test_a_gate_that_passes_would_pass_whatever_became_of_lost_items(a: str, b: str) -> None:
    size = max(len(a), len(b))
    a, b = a.ljust(size, "r"), b.ljust(size, "r")
    for rule in RULES:
        if judged(a, b, rule, margin=0.3).verdict == "pass":
            assert judged(a, b.replace(".", "b"), rule, margin=0.3).verdict != "fail"


def test_without_pairs_nothing_is_worse_than_the_noise() -> None:
    mine = (a_sitting("r" * 20),)
    again = [pair(mine, (a_sitting("r" * 10 + "w" * 10),))]
    found = judge(NonInferior(suite="orders"), pair((), ()), again=again)
    assert (found.verdict, found.why) == (
        "undecided",
        "undecidable: the margin lies under the noise of 50.0 %",
    )
