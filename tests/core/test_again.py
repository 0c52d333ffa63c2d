"""What of an old lock's records a new one still takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import UNSET

from qlock.core.again import Again, AgainRow, again
from qlock.core.lock import Lock
from qlock.core.plan import jobs
from tests.fakes.documents import a_digest, a_kld_lock, a_kld_suite, a_lock
from tests.strategies import strategy

ALL = tuple(job.name for job in jobs(a_lock()))


def changed(table: str, name: str, **changes: Any) -> Lock:
    """The lock with one entry of a table changed."""
    lock = a_lock()
    entries = tuple(
        msgspec.structs.replace(entry, **changes) if entry.name == name else entry
        for entry in getattr(lock, table)
    )
    assert entries != getattr(lock, table)
    return msgspec.structs.replace(lock, **{table: entries})


def of_point(name: str) -> tuple[str, ...]:
    return tuple(job for job in ALL if f".{name}." in job)


def of_suite(name: str) -> tuple[str, ...]:
    return tuple(job for job in ALL if job.startswith(f"{name}."))


def without(*gone: str) -> tuple[str, ...]:
    return tuple(job for job in ALL if job not in gone)


def test_nothing_changed_leaves_everything_valid() -> None:
    assert again(a_lock(), a_lock()) == Again(measure=(), grade=(), valid=ALL)


def test_another_imatrix_is_everything_of_that_model() -> None:
    new = changed("model", "Q4_K_M", metadata_digest=a_digest("another"))
    mine = of_point("Q4_K_M@f16kv")
    assert again(a_lock(), new) == Again(
        measure=(AgainRow(why="model Q4_K_M", jobs=mine),), grade=(), valid=without(*mine)
    )


def test_another_grader_is_graded_again_only() -> None:
    new = changed("suite", "orders", grade_version=2)
    mine = of_suite("orders")
    assert again(a_lock(), new) == Again(
        measure=(), grade=(AgainRow(why="grader of suite orders", jobs=mine),), valid=without(*mine)
    )


@pytest.mark.parametrize(
    "table, change",
    [
        ("device", {"driver_version": "another"}),
        ("engine", {"system_info": "another"}),
        ("setting", {"threads": 64}),
    ],
)
def test_another_driver_engine_or_setting_is_everything(table: str, change: dict[str, Any]) -> None:
    (entry,) = getattr(a_lock(), table)
    new = changed(table, entry.name, **change)
    assert again(a_lock(), new) == Again(
        measure=(AgainRow(why=f"{table} {entry.name}", jobs=ALL),), grade=(), valid=()
    )


def test_another_sampling_is_that_suite() -> None:
    suite = next(suite for suite in a_lock().suite if suite.name == "orders")
    new = changed("suite", "orders", sampling=msgspec.structs.replace(suite.sampling, seed=99))
    mine = of_suite("orders")
    assert again(a_lock(), new) == Again(
        measure=(AgainRow(why="suite orders", jobs=mine),), grade=(), valid=without(*mine)
    )


def test_another_reference_is_the_suites_that_are_held_against_it() -> None:
    lock = a_kld_lock()
    every = [job.name for job in jobs(lock)]
    model = msgspec.structs.replace(lock.model[0], tensors_digest=a_digest("another"))
    found = again(lock, msgspec.structs.replace(lock, model=(model, *lock.model[1:])))
    assert found.measure == (
        AgainRow(why="model F16", jobs=tuple(job for job in every if ".F16@" in job)),
        AgainRow(why="reference F16@f16kv", jobs=("distance.Q4_K_M@f16kv.1",)),
    )
    suite = a_kld_suite(reference="Q4_K_M@f16kv")
    found = again(lock, msgspec.structs.replace(lock, suite=(suite, *lock.suite[1:])))
    (row,) = found.measure
    assert row == AgainRow(
        why="reference Q4_K_M@f16kv", jobs=("distance.F16@f16kv.1", "distance.Q4_K_M@f16kv.1")
    )


@pytest.mark.parametrize("known", [{"prompts": UNSET}, {}], ids=["nothing known", "prompts known"])
def test_a_point_that_is_not_proved_yet_is_measured(known: dict[str, Any]) -> None:
    mine = of_point("Q4_K_M@f16kv")
    unproved = changed("point", "Q4_K_M@f16kv", canary=UNSET, **known)
    row = AgainRow(why="not proved yet", jobs=mine)
    assert again(a_lock(), unproved).measure == (row,)
    assert again(unproved, a_lock()).measure == (row,)


def test_another_canary_is_that_point_and_a_new_point_is_new() -> None:
    mine = of_point("Q4_K_M@f16kv")
    new = changed("point", "Q4_K_M@f16kv", plain_text_nats=1.5)
    assert again(a_lock(), new).measure == (AgainRow(why="point Q4_K_M@f16kv", jobs=mine),)
    lock = a_lock()
    fewer = msgspec.structs.replace(lock, point=lock.point[:1])
    assert [row.why for row in again(fewer, lock).measure] == ["new"]


def test_another_day_is_everything() -> None:
    new = a_lock(frozen_date="2027-02-03")
    assert again(a_lock(), new).measure == (AgainRow(why="frozen_date", jobs=ALL),)


def test_what_was_renamed_keeps_its_records() -> None:
    lock = a_lock()
    renamed = msgspec.structs.replace(
        lock,
        point=tuple(
            msgspec.structs.replace(point, name=point.name.replace("Q4_K_M", "Q4")) for point in lock.point
        ),
        suite=tuple(
            msgspec.structs.replace(
                suite, points=tuple(point.replace("Q4_K_M", "Q4") for point in suite.points)
            )
            for suite in lock.suite
        ),
    )
    assert again(lock, renamed).measure == ()


@given(strategy(Lock))
def test_every_job_of_the_new_lock_is_in_one_place(new: Lock) -> None:
    found = again(a_lock(), new)
    told = [job for row in (*found.measure, *found.grade) for job in row.jobs] + list(found.valid)
    wanted = [
        f"{suite.name}.{point.name}.{repeat}"
        for point in new.point
        for suite in new.suite
        if point.name in suite.points
        for repeat in range(1, suite.repeats + 1)
    ]
    assert sorted(told) == sorted(wanted)
