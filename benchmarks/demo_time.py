"""How long ``qlock demo`` takes.

Run: ``python benchmarks/demo_time.py``. Plays the whole demo in a temporary folder and prints wall time, processor time
of all its processes, and the number of cores. Good: under 180 s of wall time on two cores that do nothing else. Exit
code: the demo's own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """The demo's exit code."""
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name:
        argv = [sys.executable, "-m", "qlock", "demo", "--folder", str(Path(name) / "demo")]
        start = time.perf_counter()
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        wall_s = time.perf_counter() - start
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"qlock demo: exit code {done.returncode}, {wall_s:.0f} s of wall time, "
        f"{spent.ru_utime + spent.ru_stime:.0f} s of processor time, {os.cpu_count()} cores"
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
