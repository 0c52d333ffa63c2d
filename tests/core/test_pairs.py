import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import (
    Completed,
    Excluded,
    Failed,
    Nats,
    Outcome,
    Partial,
    Right,
    Scored,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.pairs import Bounds, Loss, Pairing, bounds, cost_of, ending_of, mark_of, pair
from tests.fakes.comparisons import DIVERGENCE, a_reading, a_sitting, an_answer
from tests.fakes.documents import a_row

replace = msgspec.structs.replace
LETTERS = st.text("rwubcexh.", max_size=30)


def paired(a: str, b: str) -> Pairing:
    return pair((a_sitting(a),), (a_sitting(b),))


def test_items_of_both_sides_are_pairs_in_the_order_of_side_a() -> None:
    found = paired("rwu", "wrr")
    assert [(one.item, one.repeat, one.a.mark, one.b.mark) for one in found.scored] == [
        ("item-0001", 1, 1.0, 0.0),
        ("item-0002", 1, 0.0, 1.0),
        ("item-0003", 1, 0.0, 1.0),
    ]
    assert found.matched == found.scored
    assert (found.losses, found.lost, found.lost_share) == ((), 0, 0.0)


def loss(side: str, why: str, *numbers: int) -> Loss:
    return Loss(
        side=side,  # type: ignore[arg-type]  # a literal, spelt in the test
        why=why,  # type: ignore[arg-type]  # the same
        items=len(numbers),
        examples=tuple(f"item-{number:04d}" for number in numbers[:5]),
    )


def test_what_lacks_on_one_side_is_listed_by_its_reason() -> None:
    found = paired("rrrrr.rr", "r.cexr.r")
    assert [one.item for one in found.scored] == ["item-0001", "item-0008"]
    assert found.losses == (
        Loss(side="a", why="absent", items=1, examples=("item-0006",)),
        Loss(side="b", why="absent", items=2, examples=("item-0002", "item-0007")),
        Loss(side="b", why="context", items=1, examples=("item-0003",)),
        Loss(side="b", why="error", items=1, examples=("item-0004",)),
        Loss(side="b", why="excluded", items=1, examples=("item-0005",)),
    )
    assert found.lost == 6


def test_items_excluded_on_both_sides_are_told_and_no_loss() -> None:
    found = paired("rx", "rx")
    assert found.losses == (loss("both", "excluded", 2),)
    assert (found.lost, found.lost_share, len(found.matched)) == (0, 0.0, 2)


def test_two_reasons_for_one_item_are_told_as_not_graded() -> None:
    assert paired("ce", "ec").losses == (loss("both", "ungraded", 1, 2),)
    assert paired("c", "c").losses == (loss("both", "context", 1),)


def test_items_that_nobody_wrote_are_counted_from_the_lock() -> None:
    found = paired("r..", "r..")
    assert found.losses == (Loss(side="both", why="absent", items=2, examples=()),)
    assert (found.lost, found.lost_share) == (2, 2 / 3)


def test_at_most_five_ids_of_a_reason_are_told() -> None:
    assert paired("rrrrrrr", ".......").losses == (loss("b", "absent", *range(1, 8)),)


def test_an_id_from_elsewhere_cannot_write_to_the_terminal() -> None:
    sitting = a_sitting("r")
    (row,) = sitting.rows
    wild = replace(sitting, rows=(replace(row, item="\x1b[2Jx"),), outcomes={})
    assert pair((wild,), (a_sitting(""),)).losses[0].examples == ("\\x1b[2Jx",)


def test_one_id_with_two_contents_is_no_pair() -> None:
    sitting = a_sitting("rr")
    other = replace(sitting.rows[1], item_digest=sitting.rows[0].item_digest)
    found = pair((sitting,), (replace(sitting, rows=(sitting.rows[0], other)),))
    assert found.losses == (loss("both", "another-item", 2),)
    assert len(found.matched) == 1


def test_marks_against_nats_are_no_pair() -> None:
    sitting = a_reading([100.0, 200.0])
    marked = replace(sitting, outcomes={**sitting.outcomes, "window-0002": Right()})
    found = pair((sitting,), (marked,))
    assert found.losses == (Loss(side="both", why="another-measure", items=1, examples=("window-0002",)),)
    fewer = pair((sitting,), (a_reading([100.0, 200.0], tokens=99),))
    assert (len(fewer.scored), fewer.lost) == (0, 2)


def test_a_divergence_is_paired_by_its_tokens_and_has_no_mark() -> None:
    sitting = a_reading([100.0])
    (name,) = sitting.outcomes
    two = replace(sitting, outcomes={name: DIVERGENCE})
    one = replace(sitting, outcomes={name: replace(DIVERGENCE, nats=(1.0,))})
    assert (mark_of(DIVERGENCE), cost_of(DIVERGENCE), cost_of(Right())) == (None, (0.75, 2), None)
    assert len(pair((two,), (two,)).scored) == 1
    for other in (one, sitting, replace(sitting, outcomes={name: Right()})):
        found = pair((two,), (other,))
        assert found.losses == (Loss(side="both", why="another-measure", items=1, examples=(name,)),)


def test_marks_beside_nats_on_both_sides_make_no_mean() -> None:
    sitting = a_reading([100.0, 200.0])
    mixed = replace(sitting, outcomes={**sitting.outcomes, "window-0002": Right()})
    found = pair((mixed,), (mixed,))
    assert [one.item for one in found.scored] == ["window-0001"]
    assert found.losses == (Loss(side="both", why="another-measure", items=1, examples=("window-0002",)),)


def test_a_row_without_a_grade_is_not_graded() -> None:
    found = pair((a_sitting("r"),), (replace(a_sitting("r"), outcomes={}),))
    assert found.losses == (loss("b", "ungraded", 1),)


def test_repeats_are_paired_with_their_own_number() -> None:
    first, second = a_sitting("rw"), a_sitting("wr", repeat=2)
    found = pair((first, second), (second, first))
    assert [(one.item, one.repeat, one.a.mark, one.b.mark) for one in found.scored] == [
        ("item-0001", 1, 1.0, 1.0),
        ("item-0002", 1, 0.0, 0.0),
        ("item-0001", 2, 0.0, 0.0),
        ("item-0002", 2, 1.0, 1.0),
    ]
    assert len(pair((first, second), (first,)).scored) == 2


@pytest.mark.parametrize(
    "a, b, low, high",
    [
        ("rrrr", "rrrr", 0.0, 0.0),
        ("rrrr", "rrr.", -0.25, 0.0),  # A was right: B can only be as good or worse
        ("rrrw", "rrr.", 0.0, 0.25),  # A was wrong: B can only be as good or better
        ("rrr.", "rrrr", 0.0, 0.25),
        ("rrrh", "rrr.", -0.125, 0.125),
        ("rrrc", "rrrc", -0.25, 0.25),
        ("rrrx", "rrrx", 0.0, 0.0),
    ],
)
def test_lost_items_are_bounded_at_their_worst(a: str, b: str, low: float, high: float) -> None:
    found = paired(a, b)
    total = sum((one.b.mark or 0.0) - (one.a.mark or 0.0) for one in found.scored)
    assert bounds(found, total) == Bounds(low=low, high=high)


@pytest.mark.parametrize(
    "outcome, mark",
    [
        (Right(), 1.0),
        (Wrong(why=""), 0.0),
        (Unparsable(why=""), 0.0),
        (Partial(share=0.25), 0.25),
        (Ungraded(why=""), None),
        (Excluded(why=""), None),
        (Nats(nats_sum=1.0, nats_square_sum=1.0, scored_tokens=1), None),
    ],
)
def test_the_mark_of_an_outcome(outcome: Outcome, mark: float | None) -> None:
    assert mark_of(outcome) == mark


def test_the_ending_of_a_row_is_that_of_its_last_written_reply() -> None:
    eos = Completed(text="", tokens=(), ending="eos", prompt_tokens=1)
    cut = Completed(text="", tokens=(), ending="budget", prompt_tokens=1)
    assert ending_of(a_row(replies=(cut, eos))) == "eos"
    assert ending_of(a_row(replies=(eos, cut))) == "budget"
    assert ending_of(a_row(replies=(eos, Failed(why="")))) == "error"
    assert ending_of(a_row(replies=())) == "error"
    assert ending_of(a_row(replies=(Scored(nats=(1.0,)),))) is None
    assert ending_of(an_answer("b", 1)) == "budget"


@given(LETTERS, LETTERS)
def test_every_item_is_in_one_pair_or_one_loss(a: str, b: str) -> None:
    found = paired(a, b)
    assert len(found.scored) + sum(one.items for one in found.losses) == max(len(a), len(b))


@given(LETTERS, LETTERS)
def test_exchanging_the_sides_exchanges_pairs_losses_and_bounds(a: str, b: str) -> None:
    one, other = paired(a, b), paired(b, a)
    exchanged = {"a": "b", "b": "a", "both": "both"}
    assert sorted((each.item, each.a.mark, each.b.mark) for each in one.scored) == sorted(
        (each.item, each.b.mark, each.a.mark) for each in other.scored
    )
    assert sorted((each.side, each.why, each.items) for each in one.losses) == sorted(
        (exchanged[each.side], each.why, each.items) for each in other.losses
    )
    assert sorted(one.loosest) == sorted((-high, -low) for low, high in other.loosest)


@given(st.permutations(range(12)))
def test_the_order_of_items_does_not_matter(order: list[int]) -> None:
    a, b = a_sitting("rrrwwwuxce.r"), a_sitting("rwurwcxx.e.r")
    shuffled = replace(b, rows=tuple(b.rows[index] for index in order if index < len(b.rows)))
    assert pair((a,), (shuffled,)) == pair((a,), (b,))
