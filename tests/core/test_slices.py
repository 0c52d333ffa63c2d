import msgspec
import pytest

from qlock.core import slices as module
from qlock.core import stats
from qlock.core.pairs import Pair, pair
from qlock.core.scores import Levels
from qlock.core.slices import SliceRow, slices, slices_meant, slices_of
from qlock.core.stats import CannotTell
from tests.fakes.comparisons import a_reading, a_sitting

replace = msgspec.structs.replace


def scored(a: str, b: str) -> tuple[Pair, ...]:
    return pair((a_sitting(a),), (a_sitting(b),)).scored


def test_every_slice_has_its_own_difference_and_a_corrected_p() -> None:
    a, b = "r" * 40, "wr" * 10 + "r" * 20
    found = slices(scored(a, b))
    north = stats.mcnemar_exact(10, 0).p_value
    assert [(row.slice, row.pairs) for row in found.row] == [
        ("bank=north", 20),
        ("bank=south", 20),
        ("third=0", 13),
        ("third=1", 14),
        ("third=2", 13),
    ]
    assert found.row[0] == SliceRow(
        slice="bank=north",
        pairs=20,
        levels=Levels(a=1.0, b=0.5, change=-0.5),
        difference=stats.paired_interval(stats.marks_of_counts(both=10, only_a=10, only_b=0, neither=0)),
        p_value=north,
        p_holm=north * 5,
    )
    assert (found.row[1].p_value, found.row[1].p_holm) == (1.0, 1.0)
    assert (found.tested, found.left_out) == (5, 0)


def test_a_small_slice_is_told_without_a_test() -> None:
    found = slices(scored("r" * 9, "w" * 9))
    unknown = CannotTell(why="fewer than 10 independent pairs")
    assert [(row.p_value, row.p_holm) for row in found.row] == [(unknown, unknown)] * 5
    assert found.tested == 0
    assert found.row[0].levels == Levels(a=1.0, b=0.0, change=-1.0)


def test_only_a_description_has_no_test_and_no_interval() -> None:
    unknown = CannotTell(why="it is invalid")
    for row in slices(scored("r" * 40, "w" * 40), describe_only="it is invalid").row:
        assert (row.difference, row.p_value, row.p_holm) == (unknown, unknown, unknown)


def test_costs_without_spread_have_no_p(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qlock.core.scores.MANY_CLUSTERS", 1)
    pairs = pair((a_reading([300.0] * 20),), (a_reading([301.0] * 20),)).scored
    sliced = tuple(
        replace(one, a=replace(one.a, row=replace(one.a.row, slices={"part": "all"}))) for one in pairs
    )
    why = "all values are 0.01, which does not show how far they could differ"
    assert [row.p_value for row in slices(sliced).row] == [CannotTell(why=why)]


def test_of_too_many_slices_the_largest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SLICES", 2)
    found = slices(scored("r" * 41, "w" * 41))
    assert [row.slice for row in found.row] == ["bank=north", "bank=south"]
    assert (found.tested, found.left_out) == (2, 3)


def test_the_name_of_a_slice_cannot_write_to_the_terminal() -> None:
    (one,) = scored("r", "r")
    wild = replace(one, a=replace(one.a, row=replace(one.a.row, slices={"bank": "\x1b[2J"})))
    assert slices((wild,)).row[0].slice == "bank=\\x1b[2J"
    assert list(slices_of((wild,))) == ["bank=\x1b[2J"]


@pytest.mark.parametrize(
    "slice_, meant",
    [
        ("bank=x", ("bank=x",)),
        ("y", ("bank=y",)),
        ("x", ("bank=x", "tone=x")),
        ("bank", ()),
        ("", ()),
        ("x=y", ("n=x=y",)),
        ("bank=z", ()),
    ],
)
def test_a_gate_means_the_slice_of_its_name_or_those_of_its_value(
    slice_: str, meant: tuple[str, ...]
) -> None:
    assert slices_meant(("tone=x", "bank=x", "bank=y", "n=x=y"), slice_) == meant
