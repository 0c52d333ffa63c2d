"""A project in a temporary folder, for the other scripts: the small model, a spec, its lock, its runs.

Run by itself it prints nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from qlock.engines.llama_cpp_python.quantize import quantize
from qlock.flows import demo, kinds, resolve, run
from qlock.world.interface import World
from qlock.world.real import real_world

ENGINE = "llama-cpp-python"
PROSE = Path(demo.__file__).with_name("demo_data") / "prose.txt"


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A run and how long it took, seconds of wall time."""

    ran: run.Ran
    wall_s: float
    asking_s: float
    """From the first word about its progress to the last: without checks, loading and canaries."""


def models(world: World, folder: Path, *names: str) -> dict[str, Path]:
    """The small model in these quantizations."""
    made = {"Q4_1": world.wheels.member(demo.SOURCE)}
    (folder / "models").mkdir(exist_ok=True)
    for name in dict.fromkeys(("F16", *names)):
        source = made["Q4_1"] if name == "F16" else made["F16"]
        path = demo.model_path(folder, name)
        quantize(source, path, file_type=name, threads=2)
        made[name] = path
    return {name: made[name] for name in names}


def locked(folder: Path, text: str) -> Path:
    """Write a spec and its lock; gives the lock's path."""
    path = folder / "specs" / "benchmark.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    resolved = resolve.resolve(
        real_world(), resolve.Asked(spec_path=path, upgrade=("all",)), kinds.engine_opener(ENGINE)
    )
    resolved.path.parent.mkdir(exist_ok=True)
    resolved.path.write_bytes(resolved.data)
    return resolved.path


def timed(lock_path: Path) -> Timed:
    """Run a lock, once more if it was run before."""
    told: list[float] = []
    order = run.Asked(lock_path=lock_path, frozen=True, repeat_lock=True)
    start = time.perf_counter()
    ran = run.run(
        real_world(), order, kinds.engine_opener(ENGINE), lambda _: told.append(time.perf_counter())
    )
    assert ran.state == "sealed", ran
    return Timed(ran=ran, wall_s=time.perf_counter() - start, asking_s=told[-1] - told[0])
