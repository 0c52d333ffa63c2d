"""What the jobs of a point are held against: the reference beside it, or a kept file of what the reference said.

Files that are not there yet are written before any point that needs them is loaded, with the reference in the seat. A
reference is held against itself beside itself: nothing is loaded twice, and nothing differs.

Does not live here: the reference's pins (``flows.references``), the files (``flows.kept_base``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from qlock.core.exchange import Diverge, Score
from qlock.core.kept_base import layout_of, shapes_of
from qlock.core.lock import PointPin, SuitePin, named
from qlock.core.plan import Job, jobs
from qlock.core.units import bytes_text
from qlock.core.verify import Finding, differences, missing
from qlock.engines.interface import Engine, KeptFile
from qlock.errors import AbsentError
from qlock.flows.asking import Question
from qlock.flows.kept_base import (
    KeptBase,
    base_of,
    base_of_job,
    bases_of,
    check_room_on_disk,
    held,
    is_whole,
    look_at,
)
from qlock.flows.kept_parts import Part, keep
from qlock.flows.laps import Laps
from qlock.flows.loaded import is_untouched, loaded_file, touched
from qlock.flows.preparing import Progress, Stage, load_of, papers, take_point
from qlock.flows.references import is_beside, is_stored, load_beside
from qlock.flows.refusal import refuse
from qlock.flows.sealing import note_loaded


class HeldAgainst:
    """Puts beside a point what its next job is held against; nothing is put twice.

    Args:
        stage: Of the stretch.
        pin: The point, which is loaded.
        laps: To begin again when it is there.
    """

    def __init__(self, stage: Stage, pin: PointPin, laps: Laps) -> None:
        self._stage = stage
        self._pin = pin
        self._laps = laps
        self._there = ""

    def need(self, suite: SuitePin) -> None:
        """Have what a suite needs.

        Raises:
            FindingsError: It is not as locked.
        """
        is_itself = suite.reference == self._pin.name
        if is_beside(suite) or (is_stored(suite) and is_itself):
            self._put(f"point {suite.reference}", lambda engine: self._beside(engine, suite.reference))
        elif is_stored(suite):
            base = base_of(self._stage.lock, suite, self._pin.name, self._stage.folder.whole.parent)
            self._put(f"file {base.path}", lambda engine: self._from_file(engine, base))

    def _put(self, what: str, prepare: Callable[[Engine], object]) -> None:
        if what == self._there:
            return

        def prepared(engine: Engine) -> None:
            prepare(engine)
            self._laps.begin()

        self._stage.seat.beside(prepared)
        self._there = what

    def _beside(self, engine: Engine, name: str) -> None:
        stage = self._stage
        reference = named(stage.lock.point, name)
        own, other = (
            load_of(stage.lock, point, stage.weights[point.model]) for point in (self._pin, reference)
        )
        found = load_beside(stage.world, engine, own, other, reference, pci_bus_id=stage.pci_bus_id)
        refuse(found, allow=stage.allow)

    def _from_file(self, engine: Engine, base: KeptBase) -> None:
        stage = self._stage
        # Before its bytes are read, so that whatever happens to it from then on shows.
        seen = loaded_file(base.place, base.path) if base.path.exists() else None
        refuse(look_at(stage.world, base), allow=stage.allow)
        # What nobody said to be whole has no digest to be held to, so nothing may allow it.
        refuse([] if is_whole(stage.world, base) else [_not_whole(base)], allow=())
        if seen is not None and base.path not in stage.kept:
            stage.kept[base.path] = seen
            note_loaded(stage.folder, stage.segment, seen)
        engine.refer(KeptFile(path=str(base.path)))


def _not_whole(base: KeptBase) -> Finding:
    why = f"`{base.path.name}` or its journal is gone, or was begun anew, since the run began"
    return missing("suite-files", base.where, "whole", why)


def write_bases(stage: Stage, todo: Iterable[Job]) -> bool:
    """Write every kept file that jobs need and that is not whole; gives whether all are there now.

    Raises:
        FindingsError: What lies there is of something else, or the reference is not as locked.
        AbsentError: Another process holds one and adds nothing to it, or the disk is full.
        EngineError: The engine died again and again.
    """
    bases = bases_of(stage.lock, todo, stage.folder.whole.parent)
    for base in bases:
        refuse(look_at(stage.world, base), allow=stage.allow)
    return all(is_whole(stage.world, base) or _write(stage, base) for base in bases)


def check_disk(stage: Stage, todo: Iterable[Job]) -> None:
    """Stop before anything is loaded where the disk has no room for the files that jobs need.

    Raises:
        InputError: More of a vocabulary is to be stored than there is, or traces cannot be read.
        AbsentError: With what is needed and what there is.
    """
    runs = stage.folder.whole.parent
    sizes = [(base, _size(stage, base)) for base in bases_of(stage.lock, todo, runs)]
    check_room_on_disk(stage.world, sizes, runs)


def _size(stage: Stage, base: KeptBase) -> int:
    """Of a whole file, bytes; known before anything is loaded."""
    data = next(exam.data for exam in stage.exams if exam.pin.name == base.suite)
    return layout_of(base.identity, shapes_of(base.identity, data)).total_bytes


def kept_again(stage: Stage) -> list[Finding]:
    """Rule 8: kept files that are no longer those that were looked at, for each suite that reads them."""
    found: list[Finding] = []
    for path, before in stage.kept.items():
        try:
            now = loaded_file(before.where, path)
        except AbsentError as error:
            why = str(error)
            found += [missing("after-the-run", where, "present", why) for where in _readers(stage, path)]
            continue
        if not is_untouched(before, now):
            found += [touched(where) for where in _readers(stage, path)]
    return found


def _readers(stage: Stage, path: Path) -> list[str]:
    """The places in findings of a kept file: one for each suite that reads it."""
    runs = stage.folder.whole.parent
    bases = (base_of_job(stage.lock, job, runs) for job in jobs(stage.lock))
    return sorted({base.where for base in bases if base is not None and base.path == path})


def _write(stage: Stage, base: KeptBase) -> bool:
    """Write a file, or wait for whoever writes it; gives whether it is whole now."""
    parts = base.identity.parts
    name = f"{base.reference} for {base.suite}, kept in {bytes_text(_size(stage, base))}"

    def tell_others(done: int) -> None:
        stage.talk(Progress(job=f"{name} by another process", done=done, items=parts, tokens=0))

    # Held before the reference is loaded: whoever has to wait takes no memory, and loads what is whole by then.
    with held(stage.world, base, tell=tell_others, is_over=stage.is_over) as is_mine:
        if not is_mine or is_whole(stage.world, base):
            return is_mine
        return _write_held(stage, base, name)


def _write_held(stage: Stage, base: KeptBase, name: str) -> bool:
    reference = named(stage.lock.point, base.reference)
    take_point(stage, reference, Laps(stage.world.clock))
    sat = papers(stage, reference, {base.suite})[base.suite]
    where = f"point.{reference.name}.prompts.{base.suite}"
    refuse(differences("prompts", where, base.prompts, sat.pin), allow=stage.allow)
    parts = tuple(_part(number, question) for number, question in enumerate(sat.questions))
    total = 0

    def tell(done: int, tokens: int) -> None:
        nonlocal total
        total += tokens
        stage.talk(Progress(job=name, done=done, items=len(parts), tokens=total))

    return keep(stage.world, stage.seat, base, parts, tell=tell, is_over=stage.is_over)


def _part(number: int, question: Question) -> Part:
    match question.given:
        case Diverge(tokens=tokens, score_from=score_from):
            return Part(number=number, tokens=tokens, score_from=score_from)
        case Score() | None:
            raise ValueError(f"`{question.item.id}` asks for no divergences")
