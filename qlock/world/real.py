"""The real world, put together. Only ``cli.main`` calls it; everything else is handed a ``World``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from qlock.errors import AbsentError
from qlock.world import amd, clock, digests, files, folder, host, journal, maps, nvml, wheel
from qlock.world.hub import open_hub
from qlock.world.hub.remote import RealRemote
from qlock.world.interface import World
from qlock.world.slurm import RealSlurm


def real_world(announce: Callable[[str], None] = lambda _: None) -> World:
    """The world as it is now: this machine, this folder, these environment variables.

    Args:
        announce: Told, in one line each, when a server is waited for.

    Raises:
        AbsentError: The current folder has been removed.
    """
    environment = MappingProxyType(dict(os.environ))
    try:
        cwd = Path.cwd()
    except FileNotFoundError as error:
        raise AbsentError(
            "the current folder is not there any more", hint="change to a folder that is"
        ) from error
    cache = cache_folder(environment)
    return World(
        clock=clock,
        files=files,
        digests=digests,
        journals=journal,
        folders=folder,
        maps=maps,
        host=host,
        nvml=nvml,
        amd=amd,
        wheels=wheel,
        hub=open_hub(environment, clock=clock, announce=announce),
        remote=RealRemote(environment, folder=cache / "url", clock=clock, announce=announce),
        slurm=RealSlurm(environment),
        environment=environment,
        cwd=cwd,
        cache_folder=cache,
    )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where qlock may keep what can be computed again.

    ``QLOCK_CACHE``, else ``XDG_CACHE_HOME``, else ``~/.cache``, and in it ``qlock``. A relative ``XDG_CACHE_HOME``
    is passed over, as its specification asks for.
    """
    if asked := environment.get("QLOCK_CACHE"):
        return Path(asked).absolute() / "qlock"
    shared = environment.get("XDG_CACHE_HOME", "")
    if Path(shared).is_absolute():
        return Path(shared) / "qlock"
    home = Path(environment.get("HOME", ""))
    return (home if home.is_absolute() else Path.home()) / ".cache" / "qlock"
