"""Scratch copies: models brought to a disk of this machine's own before the engine loads them.

On a cluster models lie on a file system that all nodes share, and a thousand tasks that load from it are its end. A copy
is held against the lock while it is written, lies in a folder that only this user can enter, and is what rule 8 looks at
after the last item. The folder goes away with the run; what a killed one left is removed by the next run that copies
to the same place. Two runs on one machine each have a folder of their own.

Does not live here: whether the files are as locked where they were found (``flows.look``).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from qlock.core.lock import Lock
from qlock.core.units import bytes_text
from qlock.core.verify import Finding
from qlock.errors import AbsentError
from qlock.flows.loaded import loaded_file, model_places
from qlock.flows.look import Sight
from qlock.flows.refusal import FindingsError
from qlock.world.files import shown
from qlock.world.interface import World
from qlock.world.scratch import free_bytes, scratch

PREFIX = "qlock-models-"


@contextlib.contextmanager
def copied(world: World, lock: Lock, sight: Sight, place: Path | None) -> Iterator[Sight]:
    """The same sight, of copies of all its models; until the end of the ``with``.

    ``origins`` stays. A stretch that is killed can say nothing of its copies any more; what they were copied of can
    still be looked at, and nobody else could touch them.

    Args:
        world: The effects.
        lock: What is locked.
        sight: What was found.
        place: Where copies are made; ``None``: none are.

    Raises:
        FindingsError: What was written is not what is locked.
        AbsentError: There is no room, or the folder is not there.
    """
    if place is None:
        yield sight
        return
    folder = scratch(PREFIX, place=place)
    try:
        _check_room(sight, place)
        right = _copy(world, lock, sight.weights, folder)
        # Bytes that are allowed to be other ones than locked are held against those that were found.
        other = _copy(world, lock, sight.other_weights, folder, found=True)
        loaded = tuple(
            loaded_file(where, Path(path))
            for model in lock.model
            for path, where in zip((right | other).get(model.name, ()), model_places(model), strict=False)
        )
        yield msgspec.structs.replace(sight, weights=right, other_weights=other, loaded=loaded)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_room(sight: Sight, place: Path) -> None:
    """Stop before anything is written where all of it could not be.

    Raises:
        AbsentError: With what is needed and what there is.
    """
    needed = sum(file.size_bytes for file in sight.origins)
    free = free_bytes(place)
    if needed > free:
        raise AbsentError(
            f"the models need {bytes_text(needed)}, and `{shown(place)}` has {bytes_text(free)} left",
            hint="free some space there, give another folder with --scratch, or run one task at a time with --task",
        )


def _copy(
    world: World, lock: Lock, weights: dict[str, tuple[str, ...]], folder: Path, *, found: bool = False
) -> dict[str, tuple[str, ...]]:
    """Model name to the paths of the copies of its files, which keep their names: shards find one another by them."""
    copies = {}
    for model in lock.model:
        if model.name not in weights:
            continue
        own = folder / model.name
        own.mkdir()
        paths = []
        for path, file, where in zip(weights[model.name], model.file, model_places(model), strict=True):
            source, target = Path(path), own / Path(path).name
            digest = world.digests.copy_file(source, target)
            expected = file.blake3
            if found:
                expected = world.digests.blake3_file(source, cache=world.cache_folder).blake3
            if digest.blake3 != expected:
                raise FindingsError((_other_bytes(where, str(expected), digest.blake3),))
            target.chmod(0o400)
            paths.append(str(target))
        copies[model.name] = tuple(paths)
    return copies


def _other_bytes(where: str, expected: str, written: str) -> Finding:
    return Finding(
        rule="model-files",
        where=f"{where}.blake3",
        expected=expected,
        found=written,
        effect="output",
        why="the file changed before or while it was copied to the scratch folder",
    )
