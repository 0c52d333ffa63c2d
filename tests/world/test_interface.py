"""The real modules and the fakes offer what the protocols ask for, by the same names."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from qlock.world import interface
from qlock.world.interface import World
from qlock.world.real import real_world
from tests.fakes.world import fake_world

PARTS = [
    (name, hint)
    for name, hint in get_type_hints(World).items()
    if name not in ("environment", "cwd", "cache_folder")
]


def methods(protocol: Any) -> dict[str, Any]:
    return {
        name: member
        for name, member in vars(protocol).items()
        if inspect.isfunction(member) and name[0] != "_"
    }


@pytest.mark.parametrize("part, protocol", PARTS)
@pytest.mark.parametrize("which", ["real", "fake"])
def test_every_method_is_there_with_its_parameters(
    part: str, protocol: Any, which: str, tmp_path: Path
) -> None:
    world = real_world() if which == "real" else fake_world(tmp_path)
    for name, wanted in methods(protocol).items():
        offered = inspect.signature(getattr(getattr(world, part), name)).parameters
        asked = {key: one for key, one in inspect.signature(wanted).parameters.items() if key != "self"}
        for key, one in asked.items():
            assert (offered[key].kind, offered[key].default) == (one.kind, one.default), (part, name, key)
        extra = [one for key, one in offered.items() if key not in asked]
        assert all(one.default is not inspect.Parameter.empty for one in extra), (part, name)


def test_every_protocol_is_a_part_of_the_world_or_opened_by_one() -> None:
    protocols = {
        name
        for name, member in vars(interface).items()
        if inspect.isclass(member)
        and getattr(member, "_is_protocol", False)
        and member.__module__ == interface.__name__
    }
    assert protocols == {protocol.__name__ for _, protocol in PARTS} | {"Journal"}


def test_a_world_cannot_be_changed(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    with pytest.raises(AttributeError):
        world.cwd = tmp_path  # type: ignore[misc]  # that it cannot be set is what is tested
