"""When a run has to be over: the earlier of two limits, and the time kept for a clean end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import InputError
from qlock.flows.deadline import Deadline, deadline
from qlock.world.interface import World
from tests.fakes.world import START, fake_world


def in_job(world: World, end: str) -> World:
    return msgspec.structs.replace(world, environment={"SLURM_JOB_END_TIME": end})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return fake_world(tmp_path)


def test_without_a_limit_there_is_no_deadline(world: World) -> None:
    assert deadline(world, None) is None


def test_of_a_long_job_two_minutes_are_kept(world: World) -> None:
    assert deadline(world, 3600.0) == Deadline(ask_until_s=3480.0, leave_at_s=3540.0, kill_at_s=3570.0)


def test_of_a_short_job_a_quarter_is_kept(world: World) -> None:
    assert deadline(world, 80.0) == Deadline(ask_until_s=60.0, leave_at_s=70.0, kill_at_s=75.0)


def test_slurm_says_when_the_job_ends(world: World) -> None:
    job = in_job(world, str(int(START.timestamp()) + 80))
    assert deadline(job, None) == deadline(world, 80.0)
    assert deadline(job, 3600.0) == deadline(world, 80.0)
    assert deadline(job, 40.0) == deadline(world, 40.0)


def test_a_job_whose_time_is_over_asks_nothing(world: World) -> None:
    job = in_job(world, str(int(START.timestamp()) - 5))
    assert deadline(job, None) == Deadline(ask_until_s=0.0, leave_at_s=0.0, kill_at_s=0.0)


@pytest.mark.parametrize("text", ["soon", "-5", "1.5", "\u0661"])
def test_what_is_no_time_is_refused(world: World, text: str) -> None:
    with pytest.raises(InputError) as caught:
        deadline(in_job(world, text), None)
    assert str(caught.value) == f"SLURM_JOB_END_TIME: got `{text}`, expected seconds since 1970"


def test_the_moments_stand_in_order_and_before_the_limit(world: World) -> None:
    @given(st.floats(0, 1e8))
    def law(limit_s: float) -> None:
        found = deadline(world, limit_s)
        assert found is not None
        assert 0 <= found.ask_until_s <= found.leave_at_s <= found.kill_at_s <= limit_s

    law()
