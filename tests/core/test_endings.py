import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import stats
from qlock.core.endings import EndingGap, EndingRow, Endings, LoopRow, ending_gap, endings, loops, may_loop
from qlock.core.exchange import Completed, Scored
from qlock.core.loops import loop_in_tokens
from qlock.core.pairs import pair
from qlock.core.stats import CannotTell, PairedTest, wilson
from tests.fakes.comparisons import a_reading, a_sitting
from tests.fakes.documents import a_row

replace = msgspec.structs.replace


def gap(a: str, b: str, *, describe_only: str = "") -> EndingGap:
    return ending_gap(pair((a_sitting(a),), (a_sitting(b),)).scored, describe_only=describe_only)


def seen(a: str, b: str) -> Endings:
    sittings = (a_sitting(a),), (a_sitting(b),)
    found = endings(*sittings, pair(*sittings).scored)
    assert isinstance(found, Endings)
    return found


def test_every_ending_that_occurs_is_counted_on_both_sides() -> None:
    found = seen("rrwb", "rbbc")
    assert (found.replies_a, found.replies_b) == (4, 4)
    assert found.row == (
        EndingRow(ending="eos", items_a=3, items_b=1, share_a=wilson(3, 4), share_b=wilson(1, 4)),
        EndingRow(ending="budget", items_a=1, items_b=2, share_a=wilson(1, 4), share_b=wilson(2, 4)),
        EndingRow(ending="context", items_a=0, items_b=1, share_a=wilson(0, 4), share_b=wilson(1, 4)),
    )


def test_items_of_one_side_alone_have_endings_too() -> None:
    found = seen("rr", "r.")
    assert (found.replies_a, found.replies_b) == (2, 1)


def test_text_that_is_only_scored_has_no_endings() -> None:
    sittings = ((a_reading([1.0]),), (a_reading([2.0]),))
    assert endings(*sittings, pair(*sittings).scored) == CannotTell(why="nothing was written in this suite")


def test_a_gap_of_endings_is_told_with_what_it_does_to_the_score() -> None:
    found = gap("r" * 20, "r" * 10 + "b" * 10)
    assert found == EndingGap(
        only_a=0,
        only_b=10,
        test=stats.mcnemar_exact(0, 10),
        differs=True,
        from_unfinished=-0.5,
        among_finished=0.0,
        finished=10,
    )


def test_a_gap_that_could_be_chance_is_none() -> None:
    found = gap("rrrrrrrrrr", "rrrrrbbbbb")
    assert (found.only_b, found.test.p_value, found.differs) == (5, 0.0625, False)  # type: ignore[union-attr]  # a test


def test_repeats_that_all_end_alike_are_no_further_evidence() -> None:
    sides = ["r" * 20, "r" * 15 + "b" * 5]
    a, b = (tuple(a_sitting(side, repeat=repeat) for repeat in range(1, 5)) for side in sides)
    found = endings(a, b, pair(a, b).scored)
    assert isinstance(found, Endings)
    assert (found.gap.only_b, found.gap.differs) == (20, False)
    assert found.gap.test == stats.permutation_paired([4.0] * 5 + [0.0] * 15, 0)
    assert isinstance(found.gap.test, PairedTest)
    assert found.gap.test.p_value == stats.mcnemar_exact(0, 5).p_value
    items = [f"{number}" for number in range(20)] * 4
    finished = [1.0] * 15 + [0.0] * 5
    assert found.row[0].share_b == stats.share_interval(finished * 4, items)


def test_the_same_number_of_unfinished_replies_is_no_gap() -> None:
    assert not gap("b" * 10 + "r" * 10, "b" * 10 + "r" * 10).differs


def test_where_all_are_unfinished_nothing_is_known_of_finished_ones() -> None:
    assert gap("bb", "bb").among_finished == CannotTell(why="no pair was finished by both")


def test_no_test_is_made_where_only_a_description_is_allowed() -> None:
    found = gap("r" * 20, "b" * 20, describe_only="it is invalid")
    assert (found.test, found.differs, found.only_b) == (CannotTell(why="it is invalid"), False, 20)


def a_reply(*tokens: int) -> Completed:
    return Completed(text="", tokens=tokens, ending="budget", prompt_tokens=1)


def test_a_loop_in_any_reply_of_a_row_counts_once() -> None:
    loop = a_reply(*[1, 2, 3] * 20)
    assert loops(a_row(replies=(a_reply(*range(60)), loop, loop)))
    assert not loops(a_row(replies=(a_reply(*range(60)), Scored(nats=(1.0,)))))
    plain = a_sitting("rr")
    looping = replace(plain, rows=(replace(plain.rows[0], replies=(loop,)), plain.rows[1]))
    found = endings((plain,), (looping,), pair((plain,), (looping,)).scored)
    assert isinstance(found, Endings)
    assert found.loops == LoopRow(items_a=0, items_b=1, share_a=wilson(0, 2), share_b=wilson(1, 2))


@pytest.mark.parametrize("period", [1, 2, 5, 16, 40])
@pytest.mark.parametrize("before", [0, 7])
def test_the_cheap_look_passes_the_shortest_loops(period: int, before: int) -> None:
    covered = max(48, 3 * period)
    tokens = [*range(1000, 1000 + before), *[index % period for index in range(covered)]]
    assert loop_in_tokens(tokens) is not None
    assert may_loop(tokens)


def test_the_cheap_look_stops_ordinary_answers() -> None:
    assert not may_loop(range(500))
    assert not may_loop([1] * 30)


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(0, 60),
    st.lists(st.integers(0, 3), max_size=20),
)
def test_the_cheap_look_passes_over_no_loop(
    before: list[int], period: list[int], copies: int, after: list[int]
) -> None:
    tokens = [*before, *period * copies, *after]
    assert may_loop(tokens) or loop_in_tokens(tokens) is None


@given(st.text("rwbc", min_size=1, max_size=20), st.text("rwbc", min_size=1, max_size=20))
def test_exchanging_the_sides_negates_the_gap(a: str, b: str) -> None:
    one, other = gap(a, b), gap(b, a)
    assert (one.only_a, one.only_b, one.test) == (other.only_b, other.only_a, other.test)
    assert one.from_unfinished == -other.from_unfinished
    match one.among_finished, other.among_finished:
        case float(mine), float(theirs):
            assert mine == -theirs
        case mine_, theirs_:
            assert mine_ == theirs_
