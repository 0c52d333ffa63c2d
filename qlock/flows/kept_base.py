"""Kept files of a reference's log-probabilities: where they lie, whether they are what they must be, and holding one.

They lie in ``runs/NAME@DEVICE/references``, named after their identity, and serve every run of a lock with an equal one.

Does not live here: the identity and the journal (``core.kept_base``), writing a file (``flows.kept_parts``), loading the
reference and asking what is held against the file (``flows.held_against``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from qlock.core.kept_base import Identity, Log, identity_of, name_of, read_log
from qlock.core.lock import Lock, PromptsPin, SuitePin, named
from qlock.core.plan import Job, prompts_of
from qlock.core.units import bytes_text
from qlock.core.verify import Finding, differences
from qlock.errors import AbsentError, InputError
from qlock.flows.references import is_stored
from qlock.world.files import make_folder
from qlock.world.interface import HeldError, World
from qlock.world.scratch import free_bytes

FOLDER = "references"
"""Beside the folders of runs."""
HELD = ".held"
"""How the folder ends that whoever writes a kept file holds."""

STALLED_S = 7_200.0
"""Whoever writes a file and adds no part for so long, be it to load the reference or to write one, is waited for no more."""
_LOOK_EVERY_S = 10.0
_MOST_JOURNAL_BYTES = 1 << 28


class KeptBase(msgspec.Struct, frozen=True, kw_only=True):
    """One kept file, there or not."""

    suite: str
    reference: str
    identity: Identity
    prompts: PromptsPin
    """The windows, as a point that is held against the file is asked them."""
    path: Path
    """Of the file; its journal lies beside it."""

    @property
    def where(self) -> str:
        """Its place in findings."""
        return f"suite.{self.suite}.reference.kept"

    @property
    def place(self) -> str:
        """What it is called in ``Segment.loaded``: suites may share it."""
        return f"{FOLDER}/{self.path.name}"

    @property
    def journal(self) -> Path:
        """Whose file it is, and which parts are there."""
        return self.path.with_suffix(".jsonl")

    @property
    def holding(self) -> Path:
        """The folder that whoever writes the file holds."""
        return self.path.with_suffix(HELD)


def bases_of(lock: Lock, jobs: Iterable[Job], runs: Path) -> tuple[KeptBase, ...]:
    """The kept files that jobs need, each once; a reference held against itself needs none.

    Args:
        lock: Of the run.
        jobs: Those that are open.
        runs: The folder of all runs of the lock's spec.
    """
    found: dict[Path, KeptBase] = {}
    for job in jobs:
        base = base_of_job(lock, job, runs)
        if base is not None:
            found.setdefault(base.path, base)
    return tuple(found.values())


def base_of_job(lock: Lock, job: Job, runs: Path) -> KeptBase | None:
    """The kept file that a job reads; ``None`` where it reads none."""
    suite = named(lock.suite, job.suite)
    if not is_stored(suite) or job.point == suite.reference:
        return None
    return base_of(lock, suite, job.point, runs)


def base_of(lock: Lock, suite: SuitePin, point: str, runs: Path) -> KeptBase:
    """The kept file that a point is held against in a suite."""
    pin = named(lock.point, point)
    prompts = prompts_of(pin, suite.name)
    identity = identity_of(lock, suite, prompts)
    return KeptBase(
        suite=suite.name,
        reference=suite.reference,
        identity=identity,
        prompts=prompts,
        path=runs / FOLDER / f"{name_of(identity)}.kld",
    )


def holdings(runs: Path) -> list[Path]:
    """The folders that whoever writes a kept file holds, of all that were ever written.

    Args:
        runs: The folder of all runs of a lock's spec.
    """
    return sorted((runs / FOLDER).glob(f"*{HELD}"))


def check_room_on_disk(world: World, sizes: Iterable[tuple[KeptBase, int]], runs: Path) -> None:
    """Stop before anything is loaded where a file would not fit the disk.

    Args:
        world: This machine.
        sizes: Files, and how many bytes each has when it is whole.
        runs: The folder of all runs of the lock's spec.

    Raises:
        AbsentError: With what is needed and what there is.
    """
    needed = sum(size - _bytes_on_disk(base.path) for base, size in sizes if not is_whole(world, base))
    # Where they lie, which may be a link to another disk than the runs'.
    place = next(folder for folder in (runs / FOLDER, runs, *runs.parents) if folder.exists())
    free = free_bytes(place)
    if needed > free:
        raise AbsentError(
            f"the reference's log-probabilities need {bytes_text(needed)} more, "
            f"and `{place}` has {bytes_text(free)} left",
            hint="give the suite `stored_tokens` or fewer `windows`, or set `stored = false`: then nothing is written",
        )


def _bytes_on_disk(path: Path) -> int:
    """What a file takes already; one with holes takes less than it is long."""
    return path.stat().st_blocks * 512 if path.exists() else 0


def is_whole(world: World, base: KeptBase) -> bool:
    """Whether its journal says that every part is there."""
    log = _log(world, base)
    return log is not None and log.whole is not None and base.path.exists()


def _log(world: World, base: KeptBase) -> Log | None:
    if not base.journal.exists():
        return None
    # Not opened as a journal: whoever writes there now may be in the middle of a line.
    data = world.files.read_bounded(base.journal, _MOST_JOURNAL_BYTES, "journal")
    try:
        return read_log(data.split(b"\n")[:-1], name=base.journal.name)
    except InputError as error:
        error.hint = error.hint or f"remove it: then `{base.path.name}` is written again"
        raise


def look_at(world: World, base: KeptBase) -> list[Finding]:
    """What is not as it must be in a file that is there: another model, text, window, KV type, engine, or other bytes.

    Raises:
        InputError: Its journal is none, or damaged.
        AbsentError: It cannot be read.
    """
    log = _log(world, base)
    if log is None:
        return []
    found = differences("suite-files", base.where, base.identity, log.identity)
    if found or log.whole is None or not base.path.exists():
        return found
    digest = world.digests.blake3_file(base.path, cache=world.cache_folder)
    why = f"`{base.path.name}` was changed after it was written"
    if digest.blake3 == log.whole.blake3:
        why = f"`{base.journal.name}` was changed after it was written: its digest is that of the file"
    facts = (
        ("blake3", log.whole.blake3, digest.blake3),
        ("size_bytes", str(log.whole.size_bytes), str(digest.size_bytes)),
    )
    unlike = [(fact, expected, found) for fact, expected, found in facts if expected != found]
    return [
        Finding(
            rule="suite-files",
            where=f"{base.where}.{fact}",
            expected=expected,
            found=found,
            effect="output",
            why=why,
        )
        for fact, expected, found in unlike[:1]
    ]


@contextlib.contextmanager
def held(
    world: World, base: KeptBase, *, tell: Callable[[int], None], is_over: Callable[[], bool]
) -> Iterator[bool]:
    """Keep others from writing a file; gives whether it could be had before the time was up.

    Whoever writes it is waited for: another task of the same lock needs the same file. The folder that is held goes with
    its last holder: only an empty one can be removed, so none that somebody has just taken, and whoever finds it gone
    between making and taking it makes it again.

    Args:
        world: The effects.
        base: The file.
        tell: Told how many parts are there while somebody else writes them.
        is_over: Whether the time is up.

    Raises:
        HeldError: Whoever holds it has added nothing for ``STALLED_S``.
        AbsentError: The folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_empty, base.holding)
        there, since_s = -1, world.clock.monotonic_s()
        while True:
            make_folder(base.holding)
            try:
                stack.enter_context(world.folders.hold(base.holding))
            except HeldError:
                now_s, log = world.clock.monotonic_s(), _log(world, base)
                done = 0 if log is None else len(log.parts)
                if done != there:
                    there, since_s = done, now_s
                    tell(done)
                if now_s - since_s >= STALLED_S:
                    raise
            except AbsentError:
                if base.holding.exists():
                    raise
                continue
            else:
                break
            if is_over():
                yield False
                return
            world.clock.sleep_s(_LOOK_EVERY_S)
        yield True


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
