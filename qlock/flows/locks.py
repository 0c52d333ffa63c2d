"""Reading the lock of a file, of a run or of one beside a spec, with the suites' own keys held to what the suites know.

The bytes of a new one are held to what is read.

Does not live here: what a lock is (``core.lock``), and what a suite's keys mean (its own module).
"""

from __future__ import annotations

from pathlib import Path

from qlock.core.canon import MOST_TOML_BYTES
from qlock.core.escape import for_shell
from qlock.core.lock import Lock, read_lock, renew_path, write_lock
from qlock.errors import InputError
from qlock.flows.kinds import params_of, suite_kind
from qlock.world.interface import World


def read_lock_file(world: World, path: Path) -> tuple[Lock, bytes]:
    """The lock at ``path`` and its bytes.

    Raises:
        AbsentError: It is not there.
        InputError: It is no lock, of another version, or edited.
    """
    if path.is_dir():
        raise InputError(f"got the folder `{path.name}`, expected a lock file")
    data = world.files.read_bounded(path, MOST_TOML_BYTES, "lock")
    lock = read_lock(data, name=path.name)
    try:
        for index, suite in enumerate(lock.suite):
            where = f"suite[{index}]"
            params_of(suite_kind(suite.kind, where=f"{where}.kind"), suite, where=f"{where}.params")
    except InputError as error:
        # As a lock it can be read, so `resolve` keeps its pins.
        error.hint = (
            f"another qlock wrote it: renew it with `qlock resolve {for_shell(renew_path(data.decode()))}`"
        )
        raise error.in_document(path.name) from None
    return lock, data


def lock_bytes(lock: Lock, *, spec_path: str, name: str) -> bytes:
    """The bytes of a lock that is to be written.

    Args:
        lock: Everything but ``body_digest``.
        spec_path: As ``write_lock`` takes it.
        name: Of the file that it is written to.

    Raises:
        InputError: There are more than any lock may have that is read.
    """
    data = write_lock(lock, spec_path=spec_path)
    if len(data) > MOST_TOML_BYTES:
        raise InputError(
            f"the lock would have `{len(data)}` bytes, expected at most `{MOST_TOML_BYTES}`",
            hint="split the spec into several",
        ).in_document(name)
    return data
