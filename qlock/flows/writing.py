"""Putting a document in its place, with the folder that it belongs in.

Does not live here: what stands in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from qlock.errors import UsageError
from qlock.world.files import make_folder, shown
from qlock.world.interface import World

_BEGINNING_BYTES = 256


def check_output(world: World, path: Path, ours: re.Pattern[bytes]) -> None:
    """Refuse to write where something would be lost: in the folder of a run, or over a file of another kind.

    Args:
        world: The effects.
        path: What the command line names.
        ours: How the files begin that may be replaced: what the same command wrote before.

    Raises:
        UsageError: A run, or a file that is none of ours, is in the place.
        InputError: The path names a folder.
    """
    place = shown(str(path))
    # Not `Path.resolve`, which raises where a link leads back to itself.
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / "lock.toml").is_file():
            raise UsageError(f"`{place}` lies in the folder of a run", hint="write it elsewhere")
    if path.exists():
        beginning = world.files.read_prefix(path, _BEGINNING_BYTES, "output").data
        if beginning and not ours.match(beginning):
            raise UsageError(
                f"`{place}` is already there, and this command did not write it", hint="name another file"
            )


def write_file(world: World, path: Path, data: bytes) -> None:
    """Write a file whole, making its folder where there is none.

    Raises:
        AbsentError: The folder cannot be made or written, or no space is left.
        InputError: The path names a folder.
    """
    make_folder(path.parent)
    world.files.write_atomic(path, data)
