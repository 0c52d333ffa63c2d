"""Two points side by side: validity, then pairs, statistics, agreement, endings, and gates.

Steps, in the order of the report:

1. everything pinned on both sides is compared (``core.validity``); a fatal difference or an undeclared confound makes
   the comparison invalid: its numbers are a description, without test, verdict or judged gate;
2. the suites of both sides are paired item by item (``core.pairs``);
3. scores, their difference and its test (``core.scores``), slices (``core.slices``), the noise floor (``core.noise``);
4. agreement and flips (``core.agreement``); endings and loops (``core.endings``), and where unfinished replies lean to
   one side no verdict is given on quality;
5. the gates of both locks (``core.gates``);
6. where A and B were measured on two devices, the way through a point that was run on both (``core.bridge``).

``compare(b, a)`` is ``compare(a, b)`` with sides exchanged and every difference negated; gates alone look in one
direction. A run that is not sealed is compared as far as it goes, and gets no verdict.

Locks alone are compared too: whether runs of them could be, and which jobs would have to be measured again.

Does not live here: reading runs (``flows.opened``), showing a comparison (``reports``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from qlock.core import noise
from qlock.core.agreement import agreement
from qlock.core.base import Count
from qlock.core.bridge import bridge
from qlock.core.comparison import (
    COMPARISON_VERSION,
    Comparison,
    Distances,
    Recipes,
    Shown,
    Speeds,
    State,
    Suite,
    TypeRow,
)
from qlock.core.differing import quoted
from qlock.core.distance import distance_of, floor_of, measured_in
from qlock.core.endings import Endings, endings
from qlock.core.escape import for_message
from qlock.core.gates import Gate, Ground, judge
from qlock.core.lock import ModelPin, SuitePin
from qlock.core.memory import memory_bytes
from qlock.core.noise import Floor
from qlock.core.pairs import Pairing, pair
from qlock.core.plan import jobs
from qlock.core.recipe import RecipeRow
from qlock.core.rules import slice_of, suite_of
from qlock.core.scores import Levels, Score, against_noise, described, is_cost, score, withheld
from qlock.core.sides import Side, device_of, engine_of, model_of, point_of, same_tokenizer, suites_of
from qlock.core.slices import slices
from qlock.core.speed import speed_of
from qlock.core.stats import CannotTell
from qlock.core.validity import Difference, Treatment, differences
from qlock.errors import InputError

_MOST_WHY = 20
_WITHHELD: dict[State, str] = {
    "valid": "",
    "invalid": "the comparison is invalid, so this is a description only",
    "incomplete": "a run is not complete, so this is a description only",
}


def compare(
    a: Side,
    b: Side,
    *,
    treatment: Treatment = "weights",
    again_a: Side | None = None,
    again_b: Side | None = None,
    through: tuple[Side, Side] | None = None,
) -> Comparison:
    """The comparison of B with the reference A.

    Args:
        a: The reference.
        b: What is judged.
        treatment: The one thing that is meant to differ.
        again_a: Another run of A's point under the same lock, for the noise floor.
        again_b: Another run of B's point.
        through: A point that was run on A's device and on B's, there first: the bridge.
    """
    again = {
        word: (side, other)
        for word, side, other in (("noise.a", a, again_a), ("noise.b", b, again_b))
        if other is not None
    }
    found = differences(a, b, treatment=treatment, again=again)
    state, why = _state(a, b, found)
    mine, theirs = suites_of(a), suites_of(b)
    frame = _Frame(a=a, b=b, again_a=again_a, again_b=again_b, state=state)
    common = {name: _pairing(frame, name) for name in mine if name in theirs}
    suites = tuple(_suite(frame, name, pairing) for name, pairing in common.items())
    return Comparison(
        comparison_version=COMPARISON_VERSION,
        state=state,
        why=why,
        treatment=treatment,
        treatment_differs=any(one.standing == "treatment" for one in found),
        a=_shown(a),
        b=_shown(b),
        said_first=_said_first(a, b),
        difference=found,
        suite=suites,
        only_a=tuple(name for name in mine if name not in theirs),
        only_b=tuple(name for name in theirs if name not in mine),
        noise_unmeasured="" if any(suite.noise for suite in suites) else noise.unmeasured(a, b),
        recipes=_recipes(model_of(a), model_of(b)),
        gate=_gates(frame, common),
        bridge=UNSET if through is None else bridge(a, b, through, treatment=treatment),
    )


def compare_locks(
    a: Side,
    b: Side,
    *,
    treatment: Treatment = "weights",
    through: tuple[Side, Side] | None = None,
) -> Comparison:
    """What differs between two points of locks, and what follows from it; nothing was measured.

    Args:
        a: The reference, without sittings.
        b: What is judged.
        treatment: The one thing that is meant to differ.
        through: The bridge, as in ``compare``.
    """
    found = compare(replace(a, sealed=True), replace(b, sealed=True), treatment=treatment, through=through)
    return replace(
        found,
        a=replace(found.a, record="none"),
        b=replace(found.b, record="none"),
        said_first=(*_follows(a, b, found.state), *found.said_first),
        suite=(),
        noise_unmeasured="",
        gate=(),
    )


def _follows(a: Side, b: Side, state: State) -> Iterator[str]:
    """What two locks come to before anything is run."""
    may = "may be compared" if state == "valid" else "may not be compared"
    yield f"locks alone: nothing is measured here; runs of these two points {may}"
    if a.lock == b.lock or a.point != b.point:
        return
    mine, theirs = _jobs(a), _jobs(b)
    if mine is None or theirs is None:
        yield "a lock is not proved yet, so it is not known which jobs would have to be measured again"
        return
    again = [name for name, digest in theirs.items() if mine.get(name) != digest]
    told = f"; to be measured: {', '.join(again[:_MOST_WHY])}" if again else ""
    yield f"{len(theirs) - len(again)} of {len(theirs)} jobs are the same, and their records are taken over{told}"


def _jobs(side: Side) -> dict[str, str] | None:
    """Digests of the point's jobs by name; ``None`` where the lock does not know them yet."""
    try:
        return {job.name: job.digest for job in jobs(side.lock) if job.point == side.point}
    except InputError:
        return None


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What every suite of a comparison is worked out with."""

    a: Side
    b: Side
    again_a: Side | None
    again_b: Side | None
    state: State


def _state(a: Side, b: Side, found: tuple[Difference, ...]) -> tuple[State, tuple[str, ...]]:
    """Whether the comparison is valid, and why not."""
    why = [
        f"{one.standing}: {one.path}: A has {quoted(one.a)}, B has {quoted(one.b)}"
        f"{f' ({one.why})' if one.why else ''}"
        for one in sorted(found, key=lambda one: one.standing != "fatal")
        if one.standing in ("fatal", "confound")
    ]
    if why:
        more = len(why) - _MOST_WHY
        return "invalid", (*why[:_MOST_WHY], *([f"and {more} more"] if more > 0 else []))
    open_ones = tuple(
        f"the run of side {which} (`{side.name}`) is not sealed: it is not complete"
        for which, side in (("A", a), ("B", b))
        if not side.sealed
    )
    return ("incomplete" if open_ones else "valid"), open_ones


def _pairing(frame: _Frame, name: str) -> Pairing:
    return pair(frame.a.sittings.get(name, ()), frame.b.sittings.get(name, ()))


def _gates(frame: _Frame, pairings: dict[str, Pairing]) -> tuple[Gate, ...]:
    """The gates of both locks, each once."""
    others = ((frame.a, frame.again_a), (frame.b, frame.again_b))
    ground = Ground(
        a=frame.a,
        b=frame.b,
        pairings=pairings,
        again=tuple((side, other) for side, other in others if other is not None),
        withheld=_WITHHELD[frame.state],
    )
    rules = dict.fromkeys((*frame.a.lock.gate, *frame.b.lock.gate))
    return tuple(judge(rule, ground) for rule in rules)


def _suite(frame: _Frame, name: str, pairing: Pairing) -> Suite:
    mine, theirs = frame.a.sittings.get(name, ()), frame.b.sittings.get(name, ())
    floors = tuple(_floors(frame, name))
    how_ended = endings(mine, theirs, pairing.scored, describe_only=_WITHHELD[frame.state])
    return Suite(
        suite=name,
        kind=suites_of(frame.a)[name].kind,
        score=_score(pairing, how_ended, floors, frame.state, suite=suites_of(frame.a)[name]),
        lost=pairing.lost,
        losses=pairing.losses,
        endings=how_ended,
        agreement=agreement(
            pairing.matched, same_tokenizer=same_tokenizer(frame.a, frame.b), first=_critical(frame, name)
        ),
        slices=slices(pairing.scored, describe_only=_WITHHELD[frame.state]),
        noise=floors,
        speeds=Speeds(a=speed_of(mine), b=speed_of(theirs)),
        distances=_distances(frame, name),
    )


def _distances(frame: _Frame, name: str) -> Distances | UnsetType:
    """Of both sides, each with its own reference: they are the same one where the comparison is valid."""
    a, b = (
        distance_of(
            side.lock,
            suites_of(side)[name],
            side.point,
            measured_in(side.sittings.get(name, ())),
        )
        if suites_of(side)[name].reference
        else CannotTell(why="the suite names no reference")
        for side in (frame.a, frame.b)
    )
    return Distances(a=a, b=b) if suites_of(frame.a)[name].reference else UNSET


def _critical(frame: _Frame, suite: str) -> frozenset[str]:
    """Slices of a suite that have a gate of their own."""
    gates = (*frame.a.lock.gate, *frame.b.lock.gate)
    return frozenset(slice_of(gate) for gate in gates if suite_of(gate) == suite and slice_of(gate))


def _score(
    pairing: Pairing,
    how_ended: Endings | CannotTell,
    floors: tuple[Floor, ...],
    state: State,
    *,
    suite: SuitePin,
) -> Score:
    """The score with every reason that there could be for no verdict, the strongest last."""
    found = score(pairing)
    match found.levels:
        case Levels(change=change) if change and is_cost(found.measure):
            found = against_noise(found, floor_of(suite), why="the way of measuring alone can make as much")
        case _:
            pass
    if floors:
        found = against_noise(found, max(floor.value for floor in floors))
    match how_ended:
        case Endings(gap=gap) if gap.differs and found.verdict in ("b-better", "b-worse"):
            found = withheld(
                found,
                f"unfinished replies lean to one side (pairs with A's alone {gap.only_a}, B's alone {gap.only_b}), "
                "so the scores say how far each came, not which is better",
            )
        case _:
            pass
    return described(found, _WITHHELD[state]) if _WITHHELD[state] else found


def _floors(frame: _Frame, name: str) -> Iterator[Floor]:
    sides: tuple[tuple[Literal["a", "b"], Side, Side | None], ...] = (
        ("a", frame.a, frame.again_a),
        ("b", frame.b, frame.again_b),
    )
    for which, side, again in sides:
        if again is None:
            continue
        found = noise.floor(which, side.sittings.get(name, ()), again.sittings.get(name, ()))
        match found:
            case Floor():
                yield found
            case CannotTell():
                pass


def _said_first(a: Side, b: Side) -> tuple[str, ...]:
    """Warnings of either model, and where only one has them."""
    of_a, of_b = model_of(a).warnings, model_of(b).warnings
    said = [f"side A alone: {for_message(text)}" for text in of_a if text not in of_b]
    said += [f"side B alone: {for_message(text)}" for text in of_b if text not in of_a]
    return (*said, *(f"both sides: {for_message(text)}" for text in of_a if text in of_b))


def _shown(side: Side) -> Shown:
    point = point_of(side)
    return Shown(
        name=for_message(side.name),
        point=point.name,
        model=point.model,
        setting=point.setting,
        engine=for_message(f"{engine_of(side).name} ({engine_of(side).label})"),
        device=for_message(device_of(side).name),
        repeatable="unknown" if point.repeatable is UNSET else point.repeatable,
        record="sealed" if side.sealed else "open",
        memory_bytes=memory_bytes(side),
        warnings=tuple(map(for_message, model_of(side).warnings)),
    )


def _recipes(a: ModelPin, b: ModelPin) -> Recipes:
    mine, theirs = ({row.type: row for row in model.recipe} for model in (a, b))
    return Recipes(
        bits_per_weight_a=_known(a.bits_per_weight),
        bits_per_weight_b=_known(b.bits_per_weight),
        file_bytes_a=_file_bytes(a),
        file_bytes_b=_file_bytes(b),
        row=tuple(
            TypeRow(
                type=for_message(name),
                tensors_a=mine[name].tensors if name in mine else 0,
                tensors_b=theirs[name].tensors if name in theirs else 0,
                bytes_a=_bytes(mine.get(name)),
                bytes_b=_bytes(theirs.get(name)),
            )
            for name in sorted(mine.keys() | theirs.keys())
        ),
    )


def _known(bits: float | UnsetType) -> float | CannotTell:
    return CannotTell(why="a tensor has an unknown type") if bits is UNSET else bits


def _bytes(row: RecipeRow | None) -> Count | CannotTell:
    if row is None:
        return 0
    return CannotTell(why="the type is unknown") if row.bytes is UNSET else row.bytes


def _file_bytes(model: ModelPin) -> Count:
    return sum(file.size_bytes for file in model.file if file.role == "weights")
