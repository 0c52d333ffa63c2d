"""Putting a document in its place, with the folder that it belongs in.

Does not live here: what stands in it.
"""

from __future__ import annotations

from pathlib import Path

from qlock.errors import AbsentError
from qlock.world.interface import World


def write_file(world: World, path: Path, data: bytes) -> None:
    """Write a file whole, making its folder where there is none.

    Raises:
        AbsentError: The folder cannot be made or written, or no space is left.
        InputError: The path names a folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AbsentError(f"cannot make the folder `{path.parent}`: {error.strerror}") from error
    world.files.write_atomic(path, data)
