"""From a lock to its jobs: their order, what their digests depend on, and seeds that never change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.base import Base
from qlock.core.effects import Leaf, leaves
from qlock.core.lock import Lock, PointPin, read_lock
from qlock.core.plan import item_seed, job_digest, jobs, prompts_of
from qlock.errors import InputError
from tests.fakes.changes import changed
from tests.fakes.documents import (
    a_digest,
    a_kld_lock,
    a_kld_suite,
    a_lock,
    a_model,
    a_point,
    a_prompts,
    a_setting,
    a_suite,
    a_text_suite,
    lock_bytes,
)
from tests.strategies import strategy

NAME = "orders.Q4_K_M@f16kv.1"
PARTS = {"engine": 0, "device": 0, "model": 1, "setting": 0, "suite": 1, "point": 1}
"""The entries of a lock that the job is about."""
NOT_COVERED = {
    "engine": {"name"},
    "device": {"name"},
    "setting": {"name"},
    "suite": {"grade_version", "repeats", "params.items"},
}
"""Names that people gave, the graders' version, how often a suite is repeated, and where its files lie."""


def digest(lock: Lock, name: str = NAME) -> str:
    return next(job.digest for job in jobs(lock) if job.name == name)


def digest_with(table: str, entry: Base) -> str:
    """The digest of the job after one entry was replaced and everybody who names it followed."""
    lock = a_lock()
    parts: dict[str, Any] = {name: getattr(lock, name)[place] for name, place in PARTS.items()}
    parts[table] = entry
    named = {name: parts[name].name for name in ("engine", "device", "model", "setting")}
    asked = parts["point"].prompts
    suite = asked[1].suite if table == "point" else parts["suite"].name
    prompts = (asked[0], msgspec.structs.replace(asked[1], suite=suite))
    point = msgspec.structs.replace(parts["point"], prompts=prompts, **named)
    entries = {name: (parts[name],) for name in named}
    return job_digest(
        msgspec.structs.replace(lock, **entries),
        point,
        msgspec.structs.replace(parts["suite"], name=suite),
        1,
    )


def part(table: str) -> Base:
    entry: Base = getattr(a_lock(), table)[PARTS[table]]
    return entry


LEAVES = [
    pytest.param(table, leaf, id=f"{table}.{leaf.path}")
    for table in PARTS
    for leaf in leaves(part(table))
    if leaf.path != "reference"
]


def test_jobs_go_point_by_point_in_the_order_of_the_lock() -> None:
    assert [(job.name, job.point, job.suite, job.repeat, job.items) for job in jobs(a_lock())] == [
        ("wikitext.F16@f16kv.1", "F16@f16kv", "wikitext", 1, 40),
        ("orders.F16@f16kv.1", "F16@f16kv", "orders", 1, 3),
        ("orders.F16@f16kv.2", "F16@f16kv", "orders", 2, 3),
        ("wikitext.Q4_K_M@f16kv.1", "Q4_K_M@f16kv", "wikitext", 1, 40),
        ("orders.Q4_K_M@f16kv.1", "Q4_K_M@f16kv", "orders", 1, 3),
        ("orders.Q4_K_M@f16kv.2", "Q4_K_M@f16kv", "orders", 2, 3),
    ]


def test_a_point_sits_only_its_own_exams() -> None:
    lock = a_lock(suite=(a_text_suite(points=("F16@f16kv",)), a_suite(repeats=1, points=("Q4_K_M@f16kv",))))
    assert [job.name for job in jobs(lock)] == ["wikitext.F16@f16kv.1", "orders.Q4_K_M@f16kv.1"]


def test_every_job_has_a_digest_of_its_own() -> None:
    digests = [job.digest for job in jobs(a_lock())]
    assert len(set(digests)) == len(digests)


def test_a_point_whose_prompts_alone_are_pinned_has_no_jobs_yet() -> None:
    with pytest.raises(InputError) as caught:
        jobs(a_lock(point=(a_point(prompts=(a_prompts("orders"),), canary=UNSET),), suite=(a_suite(),)))
    assert (str(caught.value), caught.value.hint) == (
        "point.Q4_K_M@f16kv: the point is not proved yet",
        "run `qlock resolve` where its weights are",
    )


@pytest.mark.parametrize("prompts", [UNSET, (), (a_prompts("wikitext"),)])
def test_prompts_that_are_not_pinned_are_named(prompts: Any) -> None:
    with pytest.raises(InputError) as caught:
        jobs(a_lock(point=(a_point(prompts=prompts),), suite=(a_suite(),)))
    assert (str(caught.value), caught.value.hint) == (
        "point.Q4_K_M@f16kv: the lock pins no prompts of suite `orders`",
        "run `qlock resolve`",
    )
    assert prompts_of(a_point(), "orders").items == 3


@pytest.mark.parametrize("table, leaf", LEAVES)
def test_the_digest_covers_exactly_what_can_change_the_replies(table: str, leaf: Leaf) -> None:
    covered = leaf.effect == "output" and leaf.path not in NOT_COVERED.get(table, set())
    if leaf.path.startswith("prompts."):
        covered = leaf.path.startswith("prompts.orders.") and leaf.path != "prompts.orders.suite"
    assert (digest_with(table, changed(part(table), leaf.path)) != digest(a_lock())) == covered


DISTANCE = "distance.Q4_K_M@f16kv.1"
REFERENCE_LEAVES = [
    pytest.param(table, leaf, id=f"{table}.{leaf.path}")
    for table in ("model", "setting", "point")
    for leaf in leaves(getattr(a_kld_lock(), table)[0])
    if leaf.path.rpartition(".")[2] not in ("name", "model", "setting", "engine", "device", "suite")
]


def with_entry(lock: Lock, table: str, entry: Base) -> Lock:
    """The lock with the first entry of a table replaced."""
    return msgspec.structs.replace(lock, **{table: (entry, *getattr(lock, table)[1:])})


@pytest.mark.parametrize("table, leaf", REFERENCE_LEAVES)
def test_what_a_job_is_held_against_is_covered_as_the_point_itself(table: str, leaf: Leaf) -> None:
    lock = a_kld_lock()
    covered = leaf.effect == "output" and not leaf.path.startswith("prompts.")
    new = with_entry(lock, table, changed(getattr(lock, table)[0], leaf.path))
    assert (digest(new, DISTANCE) != digest(lock, DISTANCE)) == covered
    if table != "setting":  # which both points share
        assert digest(new) == digest(lock)


def test_how_the_reference_is_called_does_not_matter() -> None:
    lock = a_kld_lock()
    suite = a_kld_suite(reference="BF16@f16kv", points=("Q4_K_M@f16kv",))
    point = msgspec.structs.replace(lock.point[0], name="BF16@f16kv")
    renamed = with_entry(with_entry(lock, "point", point), "suite", suite)
    assert digest(renamed, DISTANCE) == digest(lock, DISTANCE)


def test_another_reference_is_another_job() -> None:
    lock = a_kld_lock()
    other = with_entry(lock, "suite", a_kld_suite(reference="Q4_K_M@f16kv"))
    assert digest(other, DISTANCE) != digest(lock, DISTANCE)
    assert digest(other) == digest(lock)


def test_the_frozen_date_and_the_repeat_are_covered() -> None:
    assert digest(a_lock(frozen_date="2026-01-02")) != digest(a_lock())
    assert digest(a_lock(), "orders.Q4_K_M@f16kv.2") != digest(a_lock())


def test_other_models_suites_and_points_do_not_matter() -> None:
    lock = a_lock()
    alone = a_lock(model=(a_model(),), point=(a_point(),), suite=(a_suite(points=("Q4_K_M@f16kv",)),))
    more = a_lock(
        model=(*lock.model, a_model("Q8_0")),
        point=(*lock.point, a_point("Q8_0")),
        suite=(*lock.suite, a_suite("orders.more", points=())),
        setting=(*lock.setting, a_setting(name="q8kv", cache_type_k="q8_0")),
        gate=(),
        anchor=(),
        compare=UNSET,
        spec_digest=a_digest("another spec"),
    )
    assert digest(alone) == digest(more) == digest(lock)


def test_a_suite_whose_name_begins_like_another_does_not_matter() -> None:
    asked = a_point().prompts
    assert isinstance(asked, tuple)
    more = a_point(prompts=(*asked, a_prompts("orders.more", items=9)))
    assert digest(a_lock(point=(a_point("F16"), more))) == digest(a_lock())


def test_a_new_library_of_the_system_does_not_matter() -> None:
    lock = a_lock()
    files = tuple(
        msgspec.structs.replace(file, size_bytes=1) if file.role == "system" else file
        for file in lock.engine[0].file
    )
    for kept in (files, files[:-1]):
        engine = msgspec.structs.replace(lock.engine[0], file=kept)
        assert digest(msgspec.structs.replace(lock, engine=(engine,))) == digest(lock)


def test_digests_and_seeds_never_change_between_releases() -> None:
    assert digest(a_lock()) == "blake3:ab1a93d830648e3917adfd3297d5dd17da764da9a864e1d28a302e5ed232490c"
    assert item_seed(7, "order-1", 1) == 5527371416568356828
    assert item_seed(0, "", 1) == 7850788539476431709


def test_seeds_differ_by_seed_item_and_repeat() -> None:
    found = {
        item_seed(seed, item, repeat)
        for seed in (0, 1, 11)
        for item in ("", "1", "é")
        for repeat in (1, 2, 11)
    }
    assert len(found) == 27


# ---------------------------------------------------------------- laws


@given(st.integers(0, 2**63 - 1), st.text(), st.integers(1, 10**6))
def test_a_seed_has_63_bits(seed: int, item: str, repeat: int) -> None:
    assert 0 <= item_seed(seed, item, repeat) < 2**63


@settings(max_examples=25)
@given(strategy(Lock))
def test_the_jobs_of_a_lock_are_those_of_its_file(lock: Lock) -> None:
    assert jobs(read_lock(lock_bytes(lock), name="x")) == jobs(lock) == jobs(lock)
    assert len(jobs(lock)) == sum(suite.repeats for suite in lock.suite) * len(lock.point)


@given(strategy(PointPin))
def test_prompts_are_found_by_their_suite(point: PointPin) -> None:
    for prompts in point.prompts or ():
        assert prompts_of(point, prompts.suite).suite == prompts.suite
