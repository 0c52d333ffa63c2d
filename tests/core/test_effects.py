"""Leaves and changes: nothing is forgotten, everything has one path, and the weaker effect holds."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.core.effects import (
    Change,
    changes,
    effect_of,
    effects_of,
    key_of,
    keyed,
    leaves,
    places,
    table_changes,
    weaker,
    what_changes_output,
)
from qlock.core.facts import Device, Engine, EngineFile, Gpu
from qlock.core.lock import Lock, ModelPin, PointPin, SuiteFile, SuitePin
from qlock.core.rules import MemoryAtMost, NoMoreErrors, NonInferior
from tests.fakes.documents import a_lock, an_engine, an_engine_file
from tests.strategies import strategy

_TIMING = msgspec.Meta(extra={"effect": "timing"})
_NOTE = msgspec.Meta(extra={"effect": "note"})


class Part(Base, frozen=True, kw_only=True):
    name: str
    size: Annotated[int, _TIMING] = 0
    text: Annotated[str, _NOTE] = ""


class Whole(Base, frozen=True, kw_only=True):
    tags: tuple[str, ...] = ()
    part: tuple[Part, ...] = ()
    noted: Annotated[tuple[Part, ...], _NOTE] | UnsetType = UNSET
    one: Part | UnsetType = UNSET
    free: dict[str, Any] = {}
    slow: Annotated[int, msgspec.Meta(ge=0), _TIMING] = 0
    plain: Annotated[int, msgspec.Meta(extra={"unit": "s"})] = 0


A, B = Part(name="a"), Part(name="b", size=2)


def paths(value: Base) -> list[tuple[str, Any, str]]:
    return [(leaf.path, leaf.value, leaf.effect) for leaf in leaves(value)]


def differences(a: Base, b: Base) -> list[tuple[str, Any, Any, str]]:
    return [(change.path, change.before, change.after, change.effect) for change in changes(a, b)]


def test_effects_stand_in_the_annotations() -> None:
    assert effects_of(Whole) == {
        "tags": "output",
        "part": "output",
        "noted": "note",
        "one": "output",
        "free": "output",
        "slow": "timing",
        "plain": "output",
    }


def test_places_are_whatever_a_change_can_be_called_by() -> None:
    whole = Whole(part=(A,), one=B, free={"a": {"b": 1}})
    assert list(places(whole, path="x")) == [
        "x",
        "x.tags",
        "x.part",
        "x.part.a",
        "x.part.a.name",
        "x.part.a.size",
        "x.part.a.text",
        "x.noted",
        "x.one",
        "x.one.name",
        "x.one.size",
        "x.one.text",
        "x.free",
        "x.free.a.b",
        "x.slow",
        "x.plain",
    ]
    assert list(places(whole, path="x", only=("tags", "noted"))) == ["x", "x.tags", "x.noted"]


def test_leaves_in_the_order_of_fields() -> None:
    whole = Whole(tags=("x",), part=(A, B), noted=(A,), free={"z": 1, "a": {"c": {}, "b": [1]}})
    assert paths(whole) == [
        ("tags", ("x",), "output"),
        ("part.a.name", "a", "output"),
        ("part.a.size", 0, "timing"),
        ("part.a.text", "", "note"),
        ("part.b.name", "b", "output"),
        ("part.b.size", 2, "timing"),
        ("part.b.text", "", "note"),
        ("noted.a.name", "a", "note"),
        ("noted.a.size", 0, "note"),
        ("noted.a.text", "", "note"),
        ("free.a.b", [1], "output"),
        ("free.a.c", {}, "output"),
        ("free.z", 1, "output"),
        ("slow", 0, "timing"),
        ("plain", 0, "output"),
    ]
    assert [leaf.path for leaf in leaves(Part(name="x"), path="at")] == ["at.name", "at.size", "at.text"]


def test_an_empty_table_has_no_leaf_and_an_empty_array_has_one() -> None:
    assert paths(Whole(one=A))[:2] == [("tags", (), "output"), ("one.name", "a", "output")]


def test_keys_that_would_read_as_two_are_quoted() -> None:
    whole = Whole(free={"a.b": 1, "a": {"b": 2}, '"': 3, "x y": 4, "": 5})
    found = [path for path, *_ in paths(whole) if path.startswith("free")]
    assert found == ['free.""', 'free."\\""', "free.a.b", 'free."a.b"', 'free."x y"']


def test_entries_are_called_by_what_tells_them_apart() -> None:
    lock = a_lock()
    assert key_of(lock.suite[1].file[0], 7) == "items"
    assert key_of(lock.gate[0], 7) == "orders"
    assert key_of(MemoryAtMost(at_most_bytes=1), 7) == "memory-at-most"
    assert key_of(lock.model[0].recipe[1], 7) == "Q4_K"
    assert isinstance(lock.point[0].probe, tuple)
    assert key_of(lock.point[0].probe[0], 7) == "permute"
    card = Gpu(
        gpu_name="L4",
        pci_device_id="",
        memory_bytes=1,
        compute_capability="",
        mig_profile="",
        power_limit_mw=1,
    )
    assert key_of(card, 7) == "7"


def test_entries_of_one_key_are_counted() -> None:
    names = ["a", "a#2", "a", "a", "b"]
    assert list(keyed(tuple(Part(name=name) for name in names))) == ["a", "a#2", "a#3", "a#4", "b"]


def test_files_of_the_system_and_of_python_are_noted_only() -> None:
    for role, effect in [
        ("build", "output"),
        ("math", "output"),
        ("driver", "output"),
        ("system", "note"),
        ("python", "note"),
    ]:
        assert effect_of(an_engine_file(role=role)) == effect
    assert {leaf.effect for leaf in leaves(an_engine_file(role="system"))} == {"note"}
    assert effect_of(A) == "output"


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ("output", "note", "note"),
        ("timing", "output", "timing"),
        ("note", "timing", "note"),
        ("output", "output", "output"),
    ],
)
def test_the_weaker_effect(a: Any, b: Any, expected: str) -> None:
    assert weaker(a, b) == weaker(b, a) == expected


def test_what_changes_output_leaves_out_the_rest() -> None:
    assert what_changes_output(Whole(part=(B,), noted=(A,))) == {"tags": (), "part.b.name": "b", "plain": 0}
    engine = what_changes_output(an_engine())
    assert [path for path in engine if "libc.so.6" in path or path == "label"] == []
    assert "file.libgomp.so.1.blake3" in engine


@pytest.mark.parametrize(
    "a, b, expected",
    [
        (Whole(), Whole(), []),
        (Whole(part=(A, B)), Whole(part=(B, A)), []),
        (Whole(slow=1), Whole(slow=2), [("slow", 1, 2, "timing")]),
        (Whole(part=(A,)), Whole(), [("part.a", A, UNSET, "output")]),
        (Whole(), Whole(part=(A,)), [("part.a", UNSET, A, "output")]),
        (Whole(part=(A, A)), Whole(part=(A,)), [("part.a#2", A, UNSET, "output")]),
        (Whole(noted=()), Whole(), [("noted", (), UNSET, "note")]),
        (Whole(noted=(A,)), Whole(), [("noted.a", A, UNSET, "note")]),
        (Whole(), Whole(noted=(A,)), [("noted.a", UNSET, A, "note")]),
        (Whole(one=A), Whole(), [("one", A, UNSET, "output")]),
        (Whole(), Whole(one=A), [("one", UNSET, A, "output")]),
        (Whole(one=A), Whole(one=B), [("one.name", "a", "b", "output"), ("one.size", 0, 2, "timing")]),
        (Whole(free={"a": 1}), Whole(free={"a": True}), [("free.a", 1, True, "output")]),
        (Whole(free={"a": 1}), Whole(free={"a": 1.0}), [("free.a", 1, 1.0, "output")]),
        (Whole(free={"a": [1, 2]}), Whole(free={"a": (1, 2)}), []),
        (Whole(free={"a": [1]}), Whole(free={"a": [True]}), [("free.a", [1], [True], "output")]),
        (Whole(free={"a": [1]}), Whole(free={"a": [1, 1]}), [("free.a", [1], [1, 1], "output")]),
        (
            Whole(free={"a": {"b": 1, "c": 1}}),
            Whole(free={"a": {"c": 2, "d": {}}}),
            [
                ("free.a.b", 1, UNSET, "output"),
                ("free.a.c", 1, 2, "output"),
                ("free.a.d", UNSET, {}, "output"),
            ],
        ),
        (Whole(free={"a": {"b": 1}}), Whole(free={"a": 1}), [("free.a", {"b": 1}, 1, "output")]),
        (Whole(tags=("a",)), Whole(tags=("b",)), [("tags", ("a",), ("b",), "output")]),
    ],
)
def test_changes(a: Base, b: Base, expected: list[Any]) -> None:
    assert differences(a, b) == expected


def test_a_gate_of_another_rule_is_another_gate() -> None:
    one, other = NonInferior(suite="orders"), NoMoreErrors(suite="orders")
    assert differences(a_lock(gate=(one,)), a_lock(gate=(other,))) == [("gate.orders", one, other, "output")]
    stricter = NonInferior(suite="orders", margin_share=0.1)
    assert differences(a_lock(gate=(one,)), a_lock(gate=(stricter,))) == [
        ("gate.orders.margin_share", 0.0, 0.1, "output")
    ]


def test_one_name_that_begins_like_another_hides_nothing() -> None:
    lib, versioned = Part(name="lib"), Part(name="lib.so", size=1)
    found = differences(Whole(part=(lib, versioned)), Whole(part=(Part(name="lib.so", size=2),)))
    assert found == [("part.lib", lib, UNSET, "output"), ("part.lib.so.size", 1, 2, "timing")]


def test_a_file_that_becomes_one_of_the_system_still_counts() -> None:
    build, system = an_engine_file(role="build"), an_engine_file(role="system")
    assert differences(build, system) == [("role", "build", "system", "output")]
    assert differences(an_engine(file=(system,)), an_engine(file=())) == [
        ("file.libllama.so", system, UNSET, "note")
    ]


def test_tables_alone() -> None:
    found = list(table_changes((A,), (B,), path="part", effect="timing"))
    assert found == [
        Change(path="part.a", before=A, after=UNSET, effect="timing"),
        Change(path="part.b", before=UNSET, after=B, effect="timing"),
    ]


# ---------------------------------------------------------------- laws


PINS = [Engine, Device, ModelPin, SuitePin, PointPin, Lock]


@pytest.mark.parametrize("kind", PINS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_paths_are_unique_and_cover_every_field(kind: type[Base], data: st.DataObject) -> None:
    value = data.draw(strategy(kind))
    found = [leaf.path for leaf in leaves(value)]
    assert len(found) == len(set(found))
    for field in kind.__struct_fields__:
        inner = getattr(value, field)
        has_leaf = any(path == field or path.startswith(f"{field}.") for path in found)
        assert has_leaf == (
            inner is not UNSET and not (inner == {} or (inner == () and is_table(kind, field)))
        )


def is_table(kind: type[Base], field: str) -> bool:
    """Whether a field holds many structs, as its written type says."""
    written = re.search(r"tuple\[(?:\w+\.)?([A-Z]\w+), \.\.\.\]", str(kind.__annotations__[field]))
    return written is not None


@pytest.mark.parametrize("kind", PINS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_two_structs_differ_exactly_where_their_leaves_do(kind: type[Base], data: st.DataObject) -> None:
    a, b = data.draw(strategy(kind)), data.draw(strategy(kind))
    assert list(changes(a, a)) == []
    assert bool(list(changes(a, b))) == (_written(a) != _written(b))
    forth = [
        (change.path, repr(change.before), repr(change.after), change.effect) for change in changes(a, b)
    ]
    back = [(change.path, repr(change.after), repr(change.before), change.effect) for change in changes(b, a)]
    assert sorted(forth) == sorted(back)


def _written(value: Base) -> list[tuple[str, str]]:
    """Leaves in a form in which 1, 1.0 and true differ and −0.0 is zero; with empty tables that are there."""
    empty = [(name, "()") for name in value.__struct_fields__ if getattr(value, name) == ()]
    return sorted(
        [
            (leaf.path, msgspec.json.encode(leaf.value).decode().replace("-0.0", "0.0"))
            for leaf in leaves(value)
        ]
        + empty
    )


@given(strategy(EngineFile), strategy(SuiteFile))
def test_all_leaves_of_a_noted_struct_are_notes(engine: EngineFile, suite: SuiteFile) -> None:
    assert (effect_of(engine) == "note") == (engine.role in ("system", "python"))
    assert {leaf.path for leaf in leaves(suite) if leaf.effect == "note"} == {
        "name",
        "requested",
        "revision",
    }
