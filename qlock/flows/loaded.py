"""Which files a stretch of running loaded, so that it can be told later whether they are the same untouched files.

A digest says which bytes a file has at one moment. Whether it had them all the while, also when it was overwritten
and put back meanwhile, its digest cannot say: what the file system notes of it can.

Does not live here: what follows from a file that was touched (``flows.run``, ``flows.sealing``).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from qlock.core import facts
from qlock.core.base import Base, Count
from qlock.core.lock import ModelPin
from qlock.core.verify import Finding
from qlock.engines.interface import Engine
from qlock.errors import AbsentError, QlockError
from qlock.world.files import error_of


class LoadedFile(Base, frozen=True, kw_only=True):
    """A file as the file system had it when its digest was looked at, before it was loaded."""

    where: str
    """Place in the lock: ``model.A.file.a.gguf``; of a kept file, beside the folders of runs: ``references/ID.kld``."""
    device: Count
    inode: Count
    size_bytes: Count
    mtime_ns: int
    ctime_ns: int
    """Set by the kernel at every write and replacement; unlike ``mtime_ns`` nobody can set it back."""
    links: Count
    """Names that the file has: one more, or one less, sets ``ctime_ns`` too."""


def loaded_file(where: str, path: Path) -> LoadedFile:
    """The file at ``path`` as it is now; symbolic links are followed.

    Raises:
        AbsentError: It is not there, or cannot be looked at.
    """
    try:
        seen = path.stat()
    except (OSError, ValueError) as error:
        raise error_of(error, path, "file") from error
    return LoadedFile(
        where=where,
        device=seen.st_dev,
        inode=seen.st_ino,
        size_bytes=seen.st_size,
        mtime_ns=seen.st_mtime_ns,
        ctime_ns=seen.st_ctime_ns,
        links=seen.st_nlink,
    )


def is_untouched(before: LoadedFile, now: LoadedFile) -> bool:
    """Whether nobody wrote to the file or replaced it.

    The number of the device is left out: another node, or the same one after a reboot, may number the same file
    system otherwise, and a file on another one does not have the same inode, times and size. Where the file got or lost
    a name meanwhile, ``ctime_ns`` says nothing else any more, and ``mtime_ns`` is what is left to go by: installers that
    link from a common store do that to libraries that somebody is running.
    """
    if (before.inode, before.size_bytes, before.mtime_ns) != (now.inode, now.size_bytes, now.mtime_ns):
        return False
    return before.ctime_ns == now.ctime_ns or before.links != now.links


def lies_untouched(before: LoadedFile, path: Path) -> bool:
    """Whether the file lies at ``path``, and nobody wrote to it or replaced it; false where that cannot be seen."""
    try:
        return is_untouched(before, loaded_file(before.where, path))
    except QlockError:
        return False


def engine_libraries(engine: Engine, pin: facts.Engine) -> tuple[LoadedFile, ...]:
    """The files that a running engine mapped, of those that a lock pins, as they are now; one that went is left out."""
    names = {file.name for file in pin.file}
    found = []
    for mapped in engine.mapped_files():
        path = Path(mapped.path)
        if path.name in names:
            with contextlib.suppress(AbsentError):
                found.append(loaded_file(f"engine.{pin.name}.file.{path.name}", path))
    return tuple(found)


def touched(where: str) -> Finding:
    """Rule 8: a file that has its bytes again and was written to or replaced while the run went on."""
    return Finding(
        rule="after-the-run",
        where=f"{where}.touched",
        expected="untouched since it was loaded",
        found="written to or replaced",
        effect="output",
        why="it has its bytes again, and may have had others while the run went on",
    )


def model_places(model: ModelPin) -> tuple[str, ...]:
    """The place of each file of a model, as in ``LoadedFile.where``."""
    return tuple(f"model.{model.name}.file.{file.name}" for file in model.file)
