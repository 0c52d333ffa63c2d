"""How long ``qlock --help`` takes, against a Python that does nothing.

Run: ``python benchmarks/help_time.py``. Both are started eleven times, in turns, and the medians are printed; the
ratio is what to compare between versions. A good figure is under 200 ms on a quiet machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 11


def wall_s(*argv: str) -> float:
    """Wall time of one process, seconds."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Exit code: 0."""
    helped, empty = [], []
    for _ in range(RUNS):
        empty.append(wall_s(sys.executable, "-c", "pass"))
        helped.append(wall_s(sys.executable, "-m", "qlock", "--help"))
    help_s, empty_s = statistics.median(helped), statistics.median(empty)
    print(
        f"qlock --help: {help_s * 1e3:.0f} ms, python -c pass: {empty_s * 1e3:.0f} ms, "
        f"ratio {help_s / empty_s:.1f} (medians of {RUNS}, in turns)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
