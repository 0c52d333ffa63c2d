"""How facts are called that a finding about a lock can name, which is what ``--allow`` takes.

The names come from the structs, by the rules of ``core.verify``; what the engine or the device may have beyond the
lock (a library, a card, a canary) can be named too, since a finding would.

Does not live here: what follows where a fact is allowed (``flows.refusal``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from qlock.core.canaries import CANARIES
from qlock.core.effects import places
from qlock.core.facts import Engine, Setting
from qlock.core.kept_base import Identity
from qlock.core.lock import Lock, PointPin
from qlock.core.verify import READ_BACK

_SAID_TABLES = ("read_back.weights_buffer", "read_back.cache_buffer", "told")


def fact_names(lock: Lock) -> frozenset[str]:
    """Every name of a fact of this lock, and every table that such facts stand in."""
    names = set(_names(lock))
    return frozenset({name for known in names for name in _beginnings(known)})


def is_fact(lock: Lock, fact: str) -> bool:
    """Whether a finding about this lock can have this place, or one below it."""
    return (
        fact in fact_names(lock)
        or any(
            re.fullmatch(rf"device\.{re.escape(device.name)}\.gpu\.[0-9]+", fact) for device in lock.device
        )
        or any(_is_other_file(engine, fact) for engine in lock.engine)
        or any(_is_said(point, fact) for point in lock.point)
    )


def _is_said(point: PointPin, fact: str) -> bool:
    """Whether a fact is memory that the lock does not have, or what an engine says beside what is read back of it."""
    tables = (f"point.{point.name}.{name}." for name in _SAID_TABLES)
    return any(fact.startswith(table) and fact != table for table in tables)


def _is_other_file(engine: Engine, fact: str) -> bool:
    """Whether a fact is a file that the engine may map and the lock does not have."""
    table = f"engine.{engine.name}.file."
    locked = any(f"{fact}.".startswith(f"{table}{file.name}.") for file in engine.file)
    return fact.startswith(table) and fact != table and not locked


def _names(lock: Lock) -> Iterator[str]:
    """Rule by rule."""
    for model in lock.model:
        here = f"model.{model.name}"
        yield from _files(here, places(model, path=here, only=("file",)))  # 1 and 8.
        yield from (f"{here}.recipe.{row.type}" for row in model.recipe)
    for suite in lock.suite:  # 2.
        yield from places(suite, path=f"suite.{suite.name}", only=("file",))
        if suite.reference:
            kept = f"suite.{suite.name}.reference.kept"
            yield from (f"{kept}.{name}" for name in ("blake3", "touched", *Identity.__struct_fields__))
            yield from (f"{kept}.setting.{name}" for name in Setting.__struct_fields__)
    for device in lock.device:  # 3.
        yield from places(device, path=f"device.{device.name}")
    for engine in lock.engine:  # 4 and 8.
        here = f"engine.{engine.name}"
        yield from _files(here, places(engine, path=here))
    for point in lock.point:  # 5 to 7.
        here = f"point.{point.name}"
        yield from places(point, path=here, only=("read_back", "prompts", "canary", "plain_text_nats"))
        yield from (f"{here}.{name}" for name in READ_BACK)
        yield f"{here}.cards"
        yield f"{here}.told"
        yield from (f"{here}.canary.{name}" for name in CANARIES)


def _files(where: str, names: Iterator[str]) -> Iterator[str]:
    """The names, and for each file whether it was touched while the run went on."""
    for name in names:
        yield name
        if name.startswith(f"{where}.file.") and name.endswith(".blake3"):
            yield f"{name.removesuffix('.blake3')}.touched"


def _beginnings(name: str) -> Iterator[str]:
    """The name and what stands before each of its dots: ``--allow`` takes all of them."""
    yield name
    for index, letter in enumerate(name):
        if letter == ".":
            yield name[:index]
