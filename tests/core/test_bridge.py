import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.bridge import Bridge, Span, Stop, bridge, needs_bridge
from qlock.core.compare import compare, compare_locks
from qlock.core.comparison import exit_code_of
from qlock.core.lock import ModelPin
from qlock.core.rules import NoMoreErrors
from qlock.core.scores import Levels
from qlock.core.sides import Side
from qlock.core.stats import CannotTell
from qlock.errors import ExitCode
from tests.fakes.comparisons import a_card_lock, a_crossing, a_reading, a_side, with_first
from tests.fakes.documents import a_digest

replace = msgspec.structs.replace
FIRST = CannotTell(why="it is where the way begins")
CPU, CARDS = "cpu-amd-1a-02", "gpu-nvidia-l4-x2"


def crossed(*letters: str) -> Bridge:
    a, here, there, b = a_crossing(*letters)
    return bridge(a, b, (here, there), treatment="weights")


def changed(way: tuple[Side, Side, Side, Side], at: int, **changes: object) -> Bridge:
    sides = list(way)
    sides[at] = replace(sides[at], **changes)
    a, here, there, b = sides
    return bridge(a, b, (here, there), treatment="weights")


def test_the_way_is_three_steps_over_the_items_of_all_four() -> None:
    found = crossed("r" * 16 + "w" * 4, "r" * 15 + "w" * 5, "r" * 15 + "w" * 4 + "b", "r" * 10 + "w" * 10)
    assert found == Bridge(
        point="Q4_K_M@f16kv",
        unfit=(),
        span=(
            Span(
                suite="orders",
                measure="right-share",
                items=20,
                left_out=0,
                stop=(
                    Stop(
                        point="F16@f16kv",
                        device=CPU,
                        level=0.8,
                        unfinished_share=0.0,
                        change=FIRST,
                        equal_share=FIRST,
                    ),
                    Stop(
                        point="Q4_K_M@f16kv",
                        device=CPU,
                        level=0.75,
                        unfinished_share=0.0,
                        change=-0.05,
                        equal_share=0.95,
                    ),
                    Stop(
                        point="Q4_K_M@f16kv",
                        device=CARDS,
                        level=0.75,
                        unfinished_share=0.05,
                        change=0.0,
                        equal_share=0.95,
                    ),
                    Stop(
                        point="Q2_K@f16kv",
                        device=CARDS,
                        level=0.5,
                        unfinished_share=0.0,
                        change=-0.25,
                        equal_share=0.7,
                    ),
                ),
            ),
        ),
    )


def test_an_item_that_one_of_them_has_no_score_for_is_left_out_of_all() -> None:
    (span,) = crossed("rrrr", "rrrr", "rrr.", "rrew").span
    assert (span.items, span.left_out) == (2, 2)
    assert [stop.level for stop in span.stop] == [1.0] * 4
    (nothing,) = crossed("rr..", "..rr", "rrrr", "rrrr").span
    assert (nothing.items, nothing.left_out, nothing.stop) == (0, 4, ())


def test_marks_that_are_not_whole_on_one_side_alone_make_means_of_all() -> None:
    (span,) = crossed("rrrr", "rrrr", "rrrr", "rrrh").span
    assert (span.measure, span.stop[-1].level) == ("mean-mark", 0.875)


def test_text_has_costs_and_no_answers() -> None:
    way = tuple(
        replace(side, sittings={"wikitext": (a_reading([cost] * 4),)})
        for side, cost in zip(a_crossing("r", "r", "r", "r"), (250.0, 260.0, 261.0, 300.0), strict=True)
    )
    (span,) = bridge(way[0], way[3], (way[1], way[2]), treatment="weights").span
    assert span.measure == "nats-per-token"
    assert [stop.level for stop in span.stop] == pytest.approx([2.5, 2.6, 2.61, 3.0])
    assert {stop.equal_share for stop in span.stop[1:]} == {
        CannotTell(why="no pair has a written answer on both sides")
    }
    assert {stop.unfinished_share for stop in span.stop} == {
        CannotTell(why="nothing is written in this suite")
    }


def test_what_else_differs_in_a_step_is_said_of_that_step() -> None:
    way = a_crossing("r", "r", "r", "r")
    other = with_first(a_card_lock(), setting={"slots": 4}, model={"template_digest": a_digest("x")})
    mine, theirs = (f"`{a_digest(of)[:19]}…`" for of in ("template", "x"))
    assert changed(way, 2, lock=other).unfit == (
        f"in the step from one device to the other, model.template_digest differs too: {mine} and {theirs}",
        "in the step from one device to the other, setting.slots differs too: `8` and `4`",
        f"in the step from the bridge to B, model.template_digest differs too: {theirs} and {mine}",
        "in the step from the bridge to B, setting.slots differs too: `4` and `8`",
    )
    assert changed(way, 0, forced=("device.cores",)).unfit == (
        "in the step from A to the bridge, forced.device.cores differs too: `forced` and `as locked`",
    )


def test_of_much_that_differs_in_a_step_five_facts_are_told() -> None:
    way = a_crossing("r", "r", "r", "r")
    keys = {f"key{index}": index for index in range(7)}
    unfit = changed(way, 3, lock=replace(a_card_lock(), model=_sampled(keys))).unfit
    assert len(unfit) == 6
    assert unfit[0] == "in the step from the bridge to B, model.sampling.key0 differs too: `missing` and `0`"
    assert unfit[-1] == "in the step from the bridge to B, 4 more differ"


def _sampled(keys: dict[str, int]) -> tuple[ModelPin, ...]:
    first, second = a_card_lock().model
    return first, replace(second, sampling=keys)


def test_other_libraries_of_the_engine_on_the_other_device_are_the_second_step() -> None:
    way = a_crossing("r", "r", "r", "r")
    lock = with_first(a_card_lock(), engine={"system_info": "CUDA : ARCHS = 890"})
    a, here, there, b = (replace(side, lock=lock) if index > 1 else side for index, side in enumerate(way))
    assert bridge(a, b, (here, there), treatment="weights").unfit == ()


def test_points_of_one_engine_and_device_need_no_bridge() -> None:
    a, here, there, b = a_crossing("r", "r", "r", "r")
    assert [needs_bridge(a, here), needs_bridge(there, b)] == [False, False]
    assert [needs_bridge(a, b), needs_bridge(here, there)] == [True, True]
    rebuilt = a_side("r", lock=with_first(a.lock, engine={"system_info": "CPU : AVX2 = 1"}))
    assert needs_bridge(a, rebuilt)
    assert not needs_bridge(a, a_side("r", lock=with_first(a.lock, device={"cores": 64})))


def test_a_bridge_makes_nothing_valid_and_lets_no_gate_pass() -> None:
    a, here, there, b = a_crossing("r" * 40, "r" * 40, "r" * 40, "r" * 40)
    b = replace(b, lock=replace(b.lock, gate=(NoMoreErrors(suite="orders"),)))
    found = compare(a, b, through=(here, there))
    assert isinstance(found.bridge, Bridge)
    assert (found.state, exit_code_of((found,))) == ("invalid", ExitCode.INVALID)
    assert [gate.verdict for gate in found.gate] == ["undecided"]
    assert [suite.score.verdict for suite in found.suite] == ["withheld", "withheld"]
    assert replace(found, bridge=UNSET) == compare(a, b)


def test_locks_alone_say_whether_a_bridge_would_bear() -> None:
    a, here, there, b = (replace(side, sittings={}) for side in a_crossing("r", "r", "r", "r"))
    found = compare_locks(a, b, through=(here, there))
    assert found.bridge == Bridge(point="Q4_K_M@f16kv", unfit=(), span=())


LETTERS = st.text("rwbceh.", min_size=1, max_size=12)


@given(st.tuples(LETTERS, LETTERS, LETTERS, LETTERS))
def test_the_three_changes_add_up(letters: tuple[str, str, str, str]) -> None:
    size = max(map(len, letters))
    whole = [one.ljust(size, "r") for one in letters]
    (span,) = crossed(*whole).span
    assert span.items == sum(not set(column) & set(".ce") for column in zip(*whole, strict=True))
    if span.stop:
        changes = [stop.change for stop in span.stop[1:] if isinstance(stop.change, float)]
        assert sum(changes) == pytest.approx(span.stop[3].level - span.stop[0].level, abs=1e-12)


@given(st.tuples(*[st.text("rwb", min_size=3, max_size=3)] * 4))
def test_where_all_have_every_item_the_ends_are_those_of_the_comparison(
    letters: tuple[str, str, str, str],
) -> None:
    a, here, there, b = a_crossing(*letters)
    found = compare(a, b, through=(here, there))
    assert found.bridge
    (span,) = found.bridge.span
    levels = found.suite[1].score.levels
    assert isinstance(levels, Levels)
    assert (span.stop[0].level, span.stop[3].level) == (levels.a, levels.b)
