"""What a command line names: a spec, a lock, a run, a folder, a time, with a word for who gave something else.

Does not live here: reading them whole (``core.spec``, ``core.lock``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qlock.cli.shown import project_path, whole_path
from qlock.core.escape import for_shell
from qlock.errors import AbsentError, InputError

if TYPE_CHECKING:
    from qlock.core.lock import Lock
    from qlock.world.interface import World

runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of this lock's runs, not runs/NAME@DEVICE.",
)
"""Of every verb that looks at the runs of a lock."""

_DURATION = re.compile(r"([1-9][0-9]{0,7})([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FIRST_BYTES = 1 << 12
_SPEC = re.compile(rb"^spec_version\s*=", re.MULTILINE)
_LOCK = re.compile(rb"^lock_version\s*=", re.MULTILINE)


def runs_asked(world: World, runs: Path | None) -> Path | None:
    """The whole path of what ``runs_option`` names; ``None`` where it was not given."""
    return None if runs is None else whole_path(world, runs)


def spec_asked(world: World, path: Path) -> tuple[Path, str]:
    """The whole path of a spec, and the kind of engine that it asks for.

    Raises:
        InputError: It is a lock, or no spec.
        AbsentError: It is not there.
    """
    from qlock.flows.resolve import read_spec_file

    whole = project_path(world, path)
    if _is(_LOCK, world, whole, "spec"):
        raise InputError(
            f"`{path}` is a lock, expected the spec that it was made from",
            hint="its first line names the spec",
        )
    return whole, read_spec_file(world, whole).engine.kind


def lock_asked(world: World, path: Path) -> tuple[Path, Lock]:
    """The whole path of a lock, and the lock.

    Raises:
        InputError: It is a spec or a folder, or no lock.
        AbsentError: It is not there.
    """
    from qlock.flows.locks import read_lock_file

    whole = project_path(world, path)
    if whole.is_dir():
        raise InputError(
            f"`{path}` is a folder, expected a lock", hint="give a file such as locks/NAME@DEVICE.toml"
        )
    if _is(_SPEC, world, whole, "lock"):
        raise InputError(
            f"`{path}` is a spec, expected a lock",
            hint=f"make a lock of it with `qlock resolve {for_shell(str(path))}`",
        )
    return whole, read_lock_file(world, whole)[0]


def run_asked(world: World, path: Path) -> Path:
    """The whole path of a run's folder.

    Raises:
        InputError: It is a file.
    """
    whole = project_path(world, path)
    if whole.is_file():
        what = "a lock" if _is(_LOCK, world, whole, "run") else "a file"
        raise InputError(
            f"`{path}` is {what}, expected a run's folder",
            hint="give the folder that `qlock run` named, such as runs/NAME@DEVICE/LOCK8",
        )
    return whole


def folder_asked(world: World, path: Path, option: str) -> Path:
    """The whole path of a folder that an option names.

    Raises:
        AbsentError: It is not there: looking in it would find nothing, and say so of the wrong thing.
    """
    whole = whole_path(world, path)
    if not whole.is_dir():
        raise AbsentError(f"{option}: there is no folder `{path}`")
    return whole


class Duration(click.ParamType[float]):
    """``90s``, ``45m``, ``8h`` or ``2d``, in seconds."""

    name = "TIME"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        match = _DURATION.fullmatch(str(value))
        if match is None:
            self.fail(
                f"got `{value}`, expected a number with its unit, such as `90s`, `45m`, `8h` or `2d`",
                param,
                ctx,
            )
        return int(match[1]) * _SECONDS[match[2]]


def _is(mark: re.Pattern[bytes], world: World, path: Path, what: str) -> bool:
    return mark.search(world.files.read_prefix(path, _FIRST_BYTES, what).data) is not None
