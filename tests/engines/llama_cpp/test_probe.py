"""The schedule probe: what moves is counted, and by how much."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.core.probing import verdict
from qlock.engines.llama_cpp.completion import Told
from qlock.engines.llama_cpp.probe import compared
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import Opener, load_of, work
from tests.fakes.llama_server import BOS

PROMPTS = ((BOS, 104, 105), (BOS, 106))


def told(*steps: dict[int, float], tokens: tuple[int, ...]) -> Told:
    return Told(tokens=tokens, steps=steps, printed=repr((steps, tokens)))


SAME = told({1: -0.1, 2: -3.0}, {1: -0.2, 2: -2.0}, tokens=(1, 1))


def test_rows_that_stay_the_same_move_by_nothing() -> None:
    row = compared("repeat", [SAME, SAME], [SAME, SAME])
    assert (row.rows, row.rows_bitwise, row.rows_tokens) == (2, 2, 2)
    assert (row.logit_difference_max, row.kl_nats_mean) == (0.0, 0.0)


def test_a_number_that_moves_is_no_longer_bitwise() -> None:
    moved = told({1: -0.1, 2: -3.0}, {1: -0.25, 2: -1.9}, tokens=(1, 1))
    row = compared("repeat", [SAME, SAME], [SAME, moved])
    assert (row.rows, row.rows_bitwise, row.rows_tokens) == (2, 1, 2)
    assert row.logit_difference_max == pytest.approx(0.1)
    assert row.kl_nats_mean > 0


def test_steps_behind_a_parting_are_not_compared() -> None:
    parted = told({1: -0.1, 2: -3.0}, {1: -9.0, 2: -9.0}, tokens=(2, 1))
    row = compared("repeat", [SAME], [parted])
    assert (row.rows_bitwise, row.rows_tokens, row.logit_difference_max) == (0, 0, 0.0)


def test_one_server_is_asked_again_and_started_anew(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    before = engine.pids
    rows = engine.probe(PROMPTS, steps=4)
    assert [row.variation for row in rows] == ["repeat", "fresh-server", "threads"]
    assert all(row.rows == row.rows_bitwise == row.rows_tokens == 2 for row in rows)
    assert engine.pids == before
    assert verdict(rows, slots=1).repeatable == "bitwise"


def test_several_servers_are_held_against_one(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model, replicas=2))
    rows = engine.probe(PROMPTS, steps=4)
    assert [row.variation for row in rows] == ["repeat", "fresh-server", "replicas", "threads"]
    assert all(row.rows_bitwise == 2 for row in rows)


def test_servers_that_differ_are_found(played: Opener, model: Path) -> None:
    engine = played(leaks="process")
    engine.load(load_of(model, replicas=2))
    found = {row.variation: row for row in engine.probe(PROMPTS, steps=4)}
    assert found["repeat"].rows_bitwise == 2
    assert found["fresh-server"].rows_bitwise == 0
    assert found["replicas"].rows_bitwise < 2
    assert verdict(tuple(found.values()), slots=2).repeatable == "no"


def test_threads_that_move_an_answer_are_told_only(played: Opener, model: Path) -> None:
    engine = played(leaks="threads")
    engine.load(load_of(model))
    rows = engine.probe(PROMPTS, steps=4)
    assert {row.variation: row.rows_bitwise for row in rows} == {"repeat": 2, "fresh-server": 2, "threads": 0}
    assert verdict(rows, slots=1).repeatable == "bitwise"


@pytest.mark.parametrize(
    "prompts, steps, message",
    [
        ((), 4, "got `0` prompts and `4` steps to probe, expected at least one"),
        (PROMPTS, 0, "got `2` prompts and `0` steps to probe, expected at least one"),
        (((),), 4, "cannot probe with a prompt of `0` tokens, room is for `508`"),
        (((BOS,) * 509,), 4, "cannot probe with a prompt of `509` tokens, room is for `508`"),
        (((BOS, 999),), 4, "cannot probe with a prompt of `2` tokens, room is for `508`"),
    ],
)
def test_what_cannot_be_probed(
    played: Opener, model: Path, *, prompts: tuple[tuple[int, ...], ...], steps: int, message: str
) -> None:
    engine = played()
    engine.load(load_of(model))
    with pytest.raises(EngineError) as caught:
        engine.probe(prompts, steps=steps)
    assert caught.value.message == message


def test_nothing_may_be_under_way(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    engine.submit(work("a", PROMPTS[0]))
    with pytest.raises(ValueError, match=r"^cannot probe the schedule while work is under way$"):
        engine.probe(PROMPTS, steps=4)


def test_a_server_that_dies_is_an_error(played: Opener, model: Path) -> None:
    engine = played(die_on_item=2)
    engine.load(load_of(model))
    with pytest.raises(EngineError, match=r"^the engine died \(signal SIGABRT\): GGML_ASSERT"):
        engine.probe(PROMPTS, steps=4)
