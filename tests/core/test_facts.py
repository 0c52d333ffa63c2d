"""Facts: which of them can change what a model says, and nothing that belongs to one copy of a card."""

from __future__ import annotations

import pytest

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.canon import to_struct
from qlock.core.effects import effects_of
from qlock.core.facts import Engine, EngineFile, Gpu
from qlock.errors import InputError
from tests.fakes.documents import an_engine_file

STRUCTS = [
    thing
    for thing in vars(facts).values()
    if isinstance(thing, type) and issubclass(thing, Base) and thing is not Base
]


def test_a_fact_refuses_a_run_unless_it_is_listed_here() -> None:
    weak = {
        f"{kind.__name__}.{name}": effect
        for kind in STRUCTS
        for name, effect in effects_of(kind).items()
        if effect != "output"
    }
    assert weak == {
        "EngineFile.build_id": "note",
        "Engine.label": "note",
        "Gpu.power_limit_mw": "timing",
        "Device.cpu_stepping": "note",
        "Device.cores": "timing",
        "Setting.slots_requested": "note",
        "Setting.slots_why": "note",
        "Setting.replicas": "timing",
        "Setting.mmap": "timing",
    }


def test_no_fact_belongs_to_one_copy_of_a_card() -> None:
    assert [name for name in Gpu.__struct_fields__ if "uuid" in name or "serial" in name] == []


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"role": "cuda"},
            "x: role: got `cuda`, expected one of: `build`, `driver`, `math`, `python`, `system`",
        ),
        ({"size_bytes": -1}, "x: size_bytes: got `-1`, expected an integer >= 0"),
        (
            {"blake3": "blake3:00"},
            "x: blake3: got `blake3:00`, expected `blake3:` or `sha256:` and 64 lower-case hex digits",
        ),
        ({"path": "/usr/lib"}, "x: unknown key `path`"),
    ],
)
def test_what_is_no_fact(changes: dict[str, object], message: str) -> None:
    file = an_engine_file()
    plain = {name: getattr(file, name) for name in file.__struct_fields__ if name != "code_digest"}
    with pytest.raises(InputError) as caught:
        to_struct(plain | changes, EngineFile, name="x")
    assert str(caught.value) == message


def test_an_engine_needs_all_its_facts() -> None:
    with pytest.raises(InputError) as caught:
        to_struct({"name": "a", "kind": "b", "label": "", "system_info": ""}, Engine, name="x")
    assert str(caught.value) == "x: the key `environment` is missing"
