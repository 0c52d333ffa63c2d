import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qlock.core import scores, stats
from qlock.core.pairs import Bounds, Cells, Pairing, pair
from qlock.core.perplexity import Perplexities
from qlock.core.scores import (
    Levels,
    Score,
    against_noise,
    described,
    measure_of,
    p_of,
    paired_scores,
    score,
    withheld,
)
from qlock.core.stats import (
    CannotTell,
    Detectable,
    DetectableMean,
    Interval,
    LargeSample,
    PairedTest,
)
from tests.fakes.comparisons import a_distance, a_reading, a_sitting

replace = msgspec.structs.replace


def pairing(a: str, b: str) -> Pairing:
    return pair((a_sitting(a),), (a_sitting(b),))


def of(a: str, b: str) -> Score:
    return score(pairing(a, b))


def of_text(a: list[float], b: list[float]) -> Score:
    return score(pair((a_reading(a),), (a_reading(b),)))


def test_right_and_wrong_are_compared_by_who_got_what_right() -> None:
    found = of("r" * 31 + "w" * 12 + "r" * 25 + "w" * 10, "r" * 31 + "r" * 12 + "w" * 25 + "w" * 10)
    assert (found.measure, found.pairs) == ("right-share", 78)
    assert found.cells == Cells(both=31, only_a=25, only_b=12, neither=10)
    assert found.levels == Levels(a=56 / 78, b=43 / 78, change=-13 / 78)
    assert (found.a, found.b) == (stats.wilson(56, 78), stats.wilson(43, 78))
    marks = stats.marks_of_counts(both=31, only_a=25, only_b=12, neither=10)
    assert found.difference == stats.paired_interval(marks)
    assert found.test == stats.mcnemar_exact(25, 12)
    assert p_of(found.test) == pytest.approx(0.047031, abs=1e-6)
    assert (found.verdict, found.why) == ("b-worse", "the paired test gives p below 0.05")
    assert found.bounds == Bounds(low=-13 / 78, high=-13 / 78)
    assert found.perplexities == CannotTell(why="no text was scored")


def test_a_difference_that_could_be_chance_names_the_smallest_that_would_have_been_seen() -> None:
    found = of("r" * 95 + "w" * 5, "r" * 90 + "w" * 5 + "r" * 5)
    assert found.verdict == "no-difference-seen"
    assert found.why == "this is no proof that there is none"
    assert found.smallest_detectable == stats.smallest_detectable_difference(100, 0.1)


def test_where_no_pair_differs_the_smallest_detectable_difference_assumes_the_most_that_could() -> None:
    found = of("r" * 1000, "r" * 1000)
    upper = stats.wilson(0, 1000)
    assert isinstance(upper, Interval)
    assert found.smallest_detectable == stats.smallest_detectable_difference(1000, upper.high)
    assert isinstance(of("r" * 1000, "r" * 999 + "w").smallest_detectable, CannotTell)
    assert isinstance(found.smallest_detectable, Detectable | CannotTell)


def test_shares_of_a_mark_are_compared_by_their_mean() -> None:
    found = of("h" * 12 + "w" * 8, "r" * 12 + "w" * 8)
    assert (found.measure, found.levels) == ("mean-mark", Levels(a=0.3, b=0.6, change=0.3))
    mine, theirs = [1.0] * 12 + [0.0] * 8, [0.5] * 12 + [0.0] * 8
    marks = stats.paired_marks(theirs, mine)
    assert found.difference == stats.paired_interval(marks)
    assert (found.a, found.b) == (stats.share_interval(theirs), stats.share_interval(mine))
    assert found.test == stats.permutation_paired([0.5] * 12 + [0.0] * 8, 0)
    assert found.cells == CannotTell(why="items have marks other than right and wrong, or repeats")
    assert found.verdict == "b-better"
    smallest = stats.smallest_detectable_difference(round(20 / marks.design_effect), 0.3)
    assert isinstance(smallest, Detectable)
    assert found.smallest_detectable == replace(smallest, n=20)


def test_repeats_of_one_item_are_one_cluster() -> None:
    a = (a_sitting("r" * 20), a_sitting("r" * 20, repeat=2))
    b = (a_sitting("r" * 10 + "w" * 10), a_sitting("r" * 10 + "w" * 10, repeat=2))
    found = score(pair(a, b))
    assert (found.measure, found.pairs) == ("mean-mark", 40)
    assert isinstance(found.difference, Interval)
    assert (found.difference.n, found.difference.clusters) == (40, 20)
    assert isinstance(found.test, PairedTest)
    assert (found.test.n, found.test.method) == (10, "sign-flip-exact")
    assert found.verdict == "b-worse"


def test_text_is_compared_in_nats_per_token_and_as_perplexity() -> None:
    a = [300.0 + index for index in range(12)]
    b = [cost + 2.0 + 0.1 * index for index, cost in enumerate(a)]
    found = of_text(a, b)
    assert found.measure == "nats-per-token"
    assert isinstance(found.levels, Levels)
    assert found.levels.a == pytest.approx(3.055)
    assert found.levels.change == pytest.approx(0.0255)
    assert isinstance(found.perplexities, Perplexities)
    assert found.perplexities.a == pytest.approx(math.exp(3.055))
    assert found.perplexities.ratio == pytest.approx(math.exp(0.0255))
    assert isinstance(found.difference, Interval)
    assert found.perplexities.ratio_low == math.exp(found.difference.low)
    assert found.perplexities.ratio_high == math.exp(found.difference.high)
    assert found.bounds == CannotTell(why="a cost in nats has no upper bound")
    assert found.verdict == "b-worse"
    assert of_text(b, a).verdict == "b-better"


def of_distance(a: list[float], b: list[float]) -> Score:
    return score(pair((a_distance(a),), (a_distance(b),)))


def test_two_points_are_compared_by_their_distances_window_by_window() -> None:
    near = [0.05 + 0.001 * index for index in range(12)]
    far = [mean + 0.01 + 0.0005 * (index % 3) for index, mean in enumerate(near)]
    found = of_distance(near, far)
    assert (found.measure, found.pairs) == ("kld", 12)
    assert isinstance(found.levels, Levels)
    assert found.levels.a == pytest.approx(0.0555)
    assert found.levels.change == pytest.approx(0.0105)
    assert isinstance(found.difference, Interval)
    assert found.perplexities == CannotTell(why="no text was scored")
    assert found.bounds == CannotTell(why="a cost in nats has no upper bound")
    assert found.verdict == "b-worse"
    assert of_distance(far, near).verdict == "b-better"
    assert of_distance(far, far).verdict == "no-difference-seen"


def test_the_distance_of_the_reference_from_itself_is_nothing_to_test_against() -> None:
    far = [0.05 + 0.001 * index for index in range(12)]
    for found in (of_distance([0.0] * 12, far), of_distance(far, [0.0] * 12)):
        assert (found.verdict, found.why) == (
            "withheld",
            "one side is the reference itself: the distance is the figure, and no test says more",
        )


def test_a_distance_from_the_reference_itself_has_the_interval_of_the_distance() -> None:
    far = [0.05 + 0.001 * index**2 for index in range(12)]
    found, turned = of_distance([0.0] * 12, far), of_distance(far, [0.0] * 12)
    assert isinstance(found.b, Interval)
    assert found.difference == found.b
    assert isinstance(turned.difference, Interval)
    ends = (-turned.difference.high, -turned.difference.point, -turned.difference.low)
    assert ends == (found.b.low, found.b.point, found.b.high)


def test_a_difference_that_could_be_the_way_of_measuring_is_said_so() -> None:
    near = [0.05 + 0.001 * index for index in range(12)]
    found = of_distance(near, [mean + 1e-5 for mean in near])
    assert found.verdict == "b-worse"
    within = against_noise(found, 5e-5, why="rounding")
    assert (within.verdict, within.why) == ("within-noise", "rounding")


def test_windows_of_unequal_length_weigh_by_their_tokens() -> None:
    a = replace(a_reading([100.0]), items=2)
    long = a_reading([0.0, 600.0], tokens=300)
    both = replace(
        a, rows=(*a.rows, long.rows[1]), outcomes={**a.outcomes, "window-0002": long.outcomes["window-0002"]}
    )
    found = paired_scores(pair((both,), (both,)).scored, exact=True)
    assert found.levels == Levels(a=700 / 400, b=700 / 400, change=0.0)


def test_a_cost_beyond_any_number_has_no_perplexity() -> None:
    found = of_text([80_000.0, 80_000.0], [80_000.0, 80_001.0])
    assert found.perplexities == CannotTell(why="the cost is beyond 700 nats per token")


def test_text_that_did_not_change_is_1_times_as_perplexing_and_never_better() -> None:
    found = of_text([300.0 + index for index in range(12)], [300.0 + index for index in range(12)])
    assert isinstance(found.perplexities, Perplexities)
    assert (found.perplexities.ratio, found.verdict) == (1.0, "no-difference-seen")
    assert isinstance(found.perplexities.ratio_low, CannotTell)


@pytest.mark.parametrize("kind", ["r", "h"])
def test_without_pairs_nothing_is_known(kind: str) -> None:
    found = of(kind, ".")
    assert (found.pairs, found.levels) == (0, CannotTell(why="there are no pairs"))
    assert (found.a, found.test) == (
        CannotTell(why="there are no items"),
        CannotTell(why="there are no pairs"),
    )
    assert found.smallest_detectable == CannotTell(why="there are no items")
    assert (found.verdict, found.why) == (
        "withheld",
        "more than 5% of the items, 1 of 1, are in no scored pair",
    )


def test_few_pairs_give_no_verdict() -> None:
    found = of("r" * 9, "w" * 9)
    assert (found.verdict, found.why) == (
        "cannot-tell",
        "a verdict needs 10 independent pairs, got 9",
    )
    assert of("r" * 10, "w" * 10).verdict == "b-worse"


def test_above_one_in_twenty_lost_items_there_is_no_verdict() -> None:
    found = of("r" * 200, "w" * 190 + "." * 10)
    assert found.verdict == "b-worse"
    found = of("r" * 200, "w" * 189 + "." * 11)
    assert (found.verdict, found.why) == (
        "withheld",
        "more than 5% of the items, 11 of 200, are in no scored pair",
    )


def test_a_verdict_that_lost_items_could_turn_is_not_given() -> None:
    a = "w" * 6 + "r" * 200 + "w" * 6
    b = "r" * 6 + "r" * 200 + "." * 6
    assert of(a, b).verdict == "b-better"  # A was wrong where B is missing: B can only gain
    a = "w" * 6 + "r" * 200 + "r" * 6
    found = of(a, b)
    assert (found.verdict, found.why) == ("withheld", "the items that are in no scored pair could turn it")


def test_a_constant_difference_is_judged_as_well() -> None:
    found = of("h" * 20, "r" * 20)
    assert isinstance(found.difference, Interval)
    assert 0.3 < found.difference.low < 0.5 < found.difference.high < 0.7
    assert found.verdict == "b-better"


def test_very_many_means_are_tested_by_the_normal_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MANY_CLUSTERS", 11)
    found = of("h" * 12 + "w" * 8, "r" * 12 + "w" * 8)
    interval = stats.paired_mean_interval([0.5] * 12 + [0.0] * 8)
    assert isinstance(interval, Interval)
    assert isinstance(interval.standard_error, float)
    z = interval.point / interval.standard_error
    assert found.test == LargeSample(p_value=math.erfc(z / math.sqrt(2)), n=20)
    assert found.verdict == "b-better"
    assert isinstance(of("h" * 20, "r" * 20).test, CannotTell)
    assert of("h" * 20, "r" * 20).verdict == "cannot-tell"
    monkeypatch.setattr(scores, "MANY_CLUSTERS", 12)
    assert isinstance(of("h" * 12 + "w" * 8, "r" * 12 + "w" * 8).test, PairedTest)


def test_few_windows_have_a_bootstrap_interval_and_many_one_of_t(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = [300.0 + n for n in range(30)], [300.0 + n + 0.1 * n * n for n in range(30)]
    few = of_text(a, b)
    assert isinstance(few.difference, Interval)
    assert few.difference.method == "bootstrap-t"
    assert isinstance(few.smallest_detectable, DetectableMean)
    monkeypatch.setattr(scores, "MANY_CLUSTERS", 28)
    many = of_text(a, b)
    assert isinstance(many.difference, Interval)
    assert many.difference.method == "t"
    assert isinstance(many.test, LargeSample)


def test_a_description_has_levels_and_nothing_that_concludes() -> None:
    unknown = CannotTell(why="it is invalid")
    found = described(of("r" * 20, "w" * 20), "it is invalid")
    assert found.levels == Levels(a=1.0, b=0.0, change=-1.0)
    assert (found.difference, found.test, found.smallest_detectable) == (unknown, unknown, unknown)
    assert (found.verdict, found.why) == ("withheld", "it is invalid")
    text = described(of_text([300.0, 301.0, 302.0], [310.0, 305.0, 306.0]), "it is invalid")
    assert isinstance(text.perplexities, Perplexities)
    assert (text.perplexities.ratio_low, text.perplexities.ratio_high) == (unknown, unknown)


def test_a_verdict_can_be_withheld_with_its_test_in_place() -> None:
    found = of("r" * 20, "w" * 20)
    assert withheld(found, "why") == replace(found, verdict="withheld", why="why")


def test_a_difference_within_the_noise_is_none() -> None:
    found = of("r" * 100, "r" * 90 + "w" * 10)
    assert found.verdict == "b-worse"
    assert against_noise(found, 0.1) == replace(
        found, verdict="within-noise", why="two runs of one point differ by as much"
    )
    assert against_noise(found, 0.09) == found
    unseen = of("r" * 100, "r" * 98 + "w" * 2)
    assert against_noise(unseen, 0.04).verdict == "within-noise"
    assert against_noise(unseen, 0.0) == unseen
    few = of("r" * 5, "r" * 5)
    assert against_noise(few, 0.5) == few
    same = of("r" * 100, "r" * 100)
    assert against_noise(same, 0.0) == same


def test_the_measure_is_told_by_the_outcomes() -> None:
    assert measure_of(pairing("rwu", "wwr").scored) == "right-share"
    assert measure_of(pairing("rh", "rr").scored) == "mean-mark"
    assert measure_of(pair((a_reading([1.0]),), (a_reading([1.0]),)).scored) == "nats-per-token"


LETTERS = st.text("rwuhb", min_size=1, max_size=25)


@settings(max_examples=40)
@given(LETTERS, LETTERS)
def test_exchanging_the_sides_negates_the_score(a: str, b: str) -> None:
    one, other = of(a, b), of(b, a)
    match one.levels, other.levels:
        case Levels() as mine, Levels() as theirs:
            assert (mine.a, mine.b, mine.change) == (theirs.b, theirs.a, -theirs.change)
        case mine_, theirs_:
            assert mine_ == theirs_
    match one.difference, other.difference:
        case Interval() as mine_i, Interval() as theirs_i:
            assert (mine_i.point, mine_i.low, mine_i.high) == (-theirs_i.point, -theirs_i.high, -theirs_i.low)
        case mine_c, theirs_c:
            assert type(mine_c) is type(theirs_c)
    assert p_of(one.test) == p_of(other.test)
    mirrored = {"b-better": "b-worse", "b-worse": "b-better"}
    assert mirrored.get(one.verdict, one.verdict) == other.verdict


@settings(max_examples=40)
@given(LETTERS)
def test_a_side_against_itself_is_zero(letters: str) -> None:
    found = of(letters, letters)
    assert isinstance(found.levels, Levels)
    assert found.levels.change == 0.0
    assert p_of(found.test) in (1.0, None)
    assert found.verdict in ("no-difference-seen", "cannot-tell")


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["rr", "rw", "wr", "ww", "uh"]), min_size=1, max_size=25), st.randoms())
def test_the_order_of_items_does_not_matter(pairs: list[str], random: Random) -> None:
    a, b = "".join(one[0] for one in pairs), "".join(one[1] for one in pairs)
    found = pairing(a, b)
    shuffled = list(found.scored)
    random.shuffle(shuffled)
    assert score(replace(found, scored=tuple(shuffled))) == score(found)
