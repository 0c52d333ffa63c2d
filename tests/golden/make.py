"""The golden files: what qlock writes for fixed documents, byte for byte.

`python -m tests.golden.make` rewrites them; `tests/test_golden.py` compares. A change of one is a change that users
see in their own files: a commit of its own, with a line in the changelog.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qlock.core.sbatch import SlurmSpec, script
from qlock.reports.json import schema
from tests.fakes.documents import a_gpu_device, a_lock, an_array, lock_bytes, record_bytes
from tests.golden.make_reports import REPORTS

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent

_SLURM = SlurmSpec(
    partition="gpu",
    gres="gpu:1",
    cpus=8,
    memory="16G",
    time="8:00:00",
    at_once=16,
    extra=("--constraint=a100",),
    setup=("module load cuda/12.4",),
)

GOLDEN: dict[str, Callable[[], bytes]] = {
    "lock.cpu.toml": lock_bytes,
    "lock.gpu.toml": lambda: lock_bytes(a_lock(device=(a_gpu_device(name="cpu-amd-1a-02"),))),
    "record.jsonl": record_bytes,
    "tasks.sbatch": lambda: script(_SLURM, an_array()).encode(),
    **REPORTS,
}
"""File name to what makes its bytes."""

PUBLISHED: dict[str, Callable[[], bytes]] = {"docs/comparison.schema.json": lambda: schema().encode()}
"""Path in the repository to what makes the bytes of a file that users get."""


def main() -> None:
    """Write every golden file anew."""
    for name, make in GOLDEN.items():
        (FOLDER / name).write_bytes(make())
    for path, make in PUBLISHED.items():
        (ROOT / path).write_bytes(make())


if __name__ == "__main__":
    main()
