"""What lies beside a lock: the spec that it was made of, and what only that spec says.

A lock is enough to run; a spec in its place is compared, and says in which folder the engine's build lies, which is
no part of a lock.

Does not live here: where that place is (``flows.layout``).
"""

from __future__ import annotations

from pathlib import Path

from qlock.core.lock import Lock, renew_path
from qlock.core.spec import Spec, spec_digest
from qlock.flows.layout import project_of, spec_beside
from qlock.flows.resolve import read_spec_file
from qlock.world.files import error_of
from qlock.world.interface import World


def spec_of(world: World, lock_path: Path, lock_bytes: bytes) -> Spec | None:
    """The spec of a lock; ``None`` when none lies where it should.

    Raises:
        InputError: What lies there is no spec, or no regular file.
        AbsentError: A link lies there that leads nowhere, or it may not be read.
    """
    path = spec_beside(lock_path, renew_path(lock_bytes.decode()))
    # Only where there is no such name at all, there is nothing to compare: a lock may be on its own.
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise error_of(error, path, "spec") from error
    return read_spec_file(world, path)


def build_folder(spec: Spec | None, project_path: Path) -> Path | None:
    """The folder of the engine's build that a spec names, looked up from its project; ``None`` when it names none.

    Args:
        spec: The spec, where there is one.
        project_path: A spec or lock of the project.
    """
    if spec is None or not spec.engine.path:
        return None
    return project_of(project_path) / spec.engine.path


def why_stale(world: World, lock_path: Path, lock: Lock, data: bytes) -> str:
    """Why the lock does not fit the spec beside it; empty when it does, or when there is no spec beside it."""
    spec = spec_of(world, lock_path, data)
    if spec is None or spec_digest(spec) == lock.spec_digest:
        return ""
    return f"the spec `{renew_path(data.decode())}` changed since this lock was made"
