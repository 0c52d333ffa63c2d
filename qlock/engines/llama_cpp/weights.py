"""The files of a model, as llama.cpp's programs want them: one path, and the other shards beside it.

Does not live here: reading what is in them (``core.gguf``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qlock.core.escape import for_message
from qlock.errors import AbsentError, EngineError


def refuse_scattered(weights: Sequence[str]) -> None:
    """Refuse shards that llama-server would not find: it takes the first, and looks for the others beside it.

    Links are not followed, neither here nor there: a snapshot of links into a cache is one folder.

    Raises:
        EngineError: They lie in several folders.
    """
    folders = list(dict.fromkeys(str(Path(path).parent) for path in weights))
    if len(folders) > 1:
        shown = " and ".join(f"`{for_message(folder)}`" for folder in folders[:2])
        raise EngineError(
            f"got the shards of one model in {shown}, expected one folder: llama-server looks for them beside"
            " the first",
            hint="put the shards, or links to them, into one folder",
        )


def identity(path: str) -> tuple[int, ...]:
    """What changes when a file is replaced or written to.

    Raises:
        AbsentError: It is not there.
    """
    try:
        seen = Path(path).stat()
    except OSError as error:
        raise AbsentError(f"cannot read `{for_message(path)}`: {error.strerror}") from error
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
