"""Where specs, locks and runs lie, relative to one another.

A project is the folder above ``specs/`` and ``locks/``; a spec or lock that lies elsewhere has its own folder as its
project. Sources such as ``file:data/wiki.test.raw`` are looked up from the project.

Does not live here: anything that touches the disk.
"""

from __future__ import annotations

from pathlib import Path

from qlock.core.lock import Lock
from qlock.core.spec import Spec


def project_of(path: Path) -> Path:
    """The project folder of a spec or lock."""
    folder = path.parent
    return folder.parent if folder.name in {"specs", "locks"} else folder


def spec_label(path: Path) -> str:
    """A spec's path as the first line of its lock says it: the same in every clone."""
    return f"specs/{path.name}" if path.parent.name == "specs" else path.name


def lock_label(path: Path) -> str:
    """A lock's path as people type it in its project."""
    return f"locks/{path.name}" if path.parent.name == "locks" else path.name


def lock_path(spec_path: Path, spec: Spec, device: str) -> Path:
    """Where the lock of a spec for a device belongs."""
    return project_of(spec_path) / "locks" / f"{spec.name}@{device}.toml"


def spec_beside(lock_path: Path, label: str) -> Path:
    """Where the spec of a lock lies, if it lies where it should."""
    return project_of(lock_path) / label


def runs_folder(lock_path: Path, lock: Lock) -> Path:
    """The folder of all runs of a spec on a device: ``runs/NAME@DEVICE``."""
    return project_of(lock_path) / "runs" / f"{lock.name}@{lock.device[0].name}"


def project_of_run(path: Path, lock: Lock) -> Path | None:
    """The project folder of a run; ``None`` where the run lies elsewhere than in ``runs_folder``."""
    above = path.parent
    if (above.parent.name, above.name) != ("runs", f"{lock.name}@{lock.device[0].name}"):
        return None
    return above.parent.parent


def lock_of_run(path: Path, lock: Lock) -> Path | None:
    """Where the lock of a run belongs in the run's project; ``None`` as in ``project_of_run``."""
    project = project_of_run(path, lock)
    return None if project is None else project / "locks" / f"{path.parent.name}.toml"


def resolving_folder(spec_path: Path, spec: Spec) -> Path:
    """Where it is kept how a spec was resolved on another machine; no run has a name without ``@``."""
    return project_of(spec_path) / "runs" / "resolve" / spec.name
