"""Whether two points may be compared: everything pinned on both sides, and what each difference means.

Each difference has one topic, and the topic decides what it means:

- ``fatal``: engine files of llama.cpp, the mathematics libraries and the driver, the device, and facts that were
  forced. The arithmetic differs, so no flag makes the comparison valid.
- ``treatment``: what is meant to differ, by default the weights.
- ``confound``: anything else that can change what a model says. Undeclared, it makes the comparison invalid.
- ``note``: what cannot, or what only follows from another difference in this table.

A fact that is missing counts as different, on both sides too. Names that people gave (of models, settings, files)
are no facts and are not compared.

Canaries differ by nature when model or setting do; where nothing else explains it they are ``fatal``, since then the
same pins behaved otherwise. So are answers, where two jobs of one digest gave others although both points repeat bit
for bit (``core.otherwise``).

Which facts there are comes from the structs (``core.effects``), so a new pin is compared from the day it exists.

Does not live here: what follows for numbers (``core.compare``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from qlock.core.base import Base
from qlock.core.differing import Found, Topic, found
from qlock.core.otherwise import OTHERWISE, otherwise
from qlock.core.sides import Side

Treatment = Literal["weights", "kv", "context", "template", "sampling"]
Standing = Literal["fatal", "treatment", "confound", "note"]

_FATAL: frozenset[Topic] = frozenset({"forced", "engine", "device", "answers"})
_NOTED: frozenset[Topic] = frozenset({"timing", "label"})
_COVERS: dict[Treatment, frozenset[Topic]] = {
    "weights": frozenset({"weights"}),
    "kv": frozenset({"kv"}),
    "context": frozenset({"context"}),
    "template": frozenset({"template", "prompts"}),
    "sampling": frozenset({"sampling"}),
}
_EXPLAINS: frozenset[Topic] = frozenset(
    {"weights", "kv", "context", "schedule", "rider", "engine", "device", "tokenizer"}
)
"""What lets a canary differ."""


class Difference(Base, frozen=True, kw_only=True):
    """One pinned fact that is not the same on both sides."""

    path: str
    """``model.tensors_digest``, ``engine.file.libggml-cpu.so``, ``suite.orders.sampling.temperature``."""
    topic: Topic
    standing: Standing
    a: str
    """As it is on side A, shortened; ``missing`` where it is not known, ``absent`` where there is no such entry."""
    b: str
    why: str
    """What else is known about it; empty when there is nothing to say."""


def differences(
    a: Side, b: Side, *, treatment: Treatment, again: Mapping[str, tuple[Side, Side]] | None = None
) -> tuple[Difference, ...]:
    """Every pinned fact that differs, judged, in the order engine, device, model, setting, suites, point, answers.

    Args:
        a: The reference.
        b: What is judged.
        treatment: The one thing that is meant to differ.
        again: A side and another run of its point, by the word that paths of their answers begin with.
    """
    every = [*found(a, b), *otherwise(a, b)]
    for which, (one, other) in (again or {}).items():
        every += otherwise(one, other, prefix=f"{which}.")
    explained = any(one.topic in _EXPLAINS for one in every)
    return tuple(_judged(one, treatment, explained=explained) for one in every)


def covering(every: Iterable[Difference]) -> Treatment | None:
    """The treatment that covers all that differs and is no note; ``None`` where none does, or nothing differs so."""
    topics = {one.topic for one in every if one.standing != "note"}
    return next((treatment for treatment, covers in _COVERS.items() if topics and topics <= covers), None)


def _judged(raw: Found, treatment: Treatment, *, explained: bool) -> Difference:
    why = raw.why
    if raw.topic in _FATAL:
        standing: Standing = "fatal"
    elif raw.topic == "behaviour":
        standing = "note" if explained else "fatal"
        why = "follows from the other differences" if explained else OTHERWISE
    elif raw.topic in _NOTED:
        standing = "note"
    else:
        standing = "treatment" if raw.topic in _COVERS[treatment] else "confound"
    return Difference(path=raw.path, topic=raw.topic, standing=standing, a=raw.a, b=raw.b, why=why)
