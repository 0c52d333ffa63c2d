"""Our perplexity against llama-perplexity's, on the same file, text and build: the figures, and the time.

Run: ``python benchmarks/perplexity.py``; needs llama.cpp's tools (``make llama-tools``). For F16, Q4_K_M and Q2_K of
the small model, on the demo's text in windows of 512 tokens: both perplexities, and how many times as long ours took
in five pairs of passes over three windows, taken in turns: medians of wall time and of processor time, loading left out.
Where the machine has other things to do, look at the processor time, or put ``chrt -f 5`` in front of the command. Exit
code 1 when the figures differ in a digit that the tool prints by more than one unit, or both ratios are above 1.02.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import passes
from project import PROSE, locked, models, timed

from qlock.engines.llama_cpp_python import open_engine
from qlock.world.real import real_world

NAMES = ("F16", "Q4_K_M", "Q2_K")
PAIRS = 5
WINDOWS = 3
MOST_TIMES = 1.02
SPEC = """\
spec_version = 1
name = "perplexity-{stem}"
[[model]]
name = "{name}"
source = "file:models/{name}.gguf"
[[setting]]
name = "plain"
context_tokens = 512
slots = 1
threads = 2
[[suite]]
name = "prose"
kind = "perplexity"
text = "file:prose.txt"
window_tokens = 512
"""


def pairs_of(model: Path, prose: Path) -> tuple[str, list[tuple[passes.Pass, passes.Pass]]]:
    """The tool's figure over all windows, and passes of ours and of the tool over some, the first of them by turns."""
    folder = passes.build()
    with open_engine(lib_folder=folder) as engine:
        engine.load(passes.load_of(model))
        whole, text = passes.cut(engine, prose), passes.cut(engine, prose, most=WINDOWS)
        figure = passes.said_by_tool(r"Final estimate: PPL = ([0-9.]+) ", folder, model, whole)[1]
        found = []
        for number in range(PAIRS):
            first = passes.by_engine(engine, text.measures()) if number % 2 else None
            theirs = passes.by_tool(folder, model, text)
            found.append((first or passes.by_engine(engine, text.measures()), theirs))
    return figure, found


def main() -> int:
    """Exit code: 0 when all figures agree and ours is no slower."""
    apart = slow = 0
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name:
        folder = Path(name)
        prose = folder / "prose.txt"
        prose.write_bytes(PROSE.read_bytes())
        for quant, path in models(real_world(), folder, *NAMES).items():
            ours = (
                timed(locked(folder, SPEC.format(name=quant, stem=quant.lower()))).ran.scores[0].score.value
            )
            theirs, pairs = pairs_of(path, prose)
            wall, cpu = passes.ratios(pairs)
            apart += abs(ours - float(theirs)) > 1.01e-4
            slow += min(wall, cpu) > MOST_TIMES
            print(
                f"{quant}: qlock {ours:.4f}, llama-perplexity {theirs}; median of {PAIRS} pairs:"
                f" {wall:.3f} times the wall time, {cpu:.3f} times the processor time"
            )
    return 1 if apart or slow else 0


if __name__ == "__main__":
    sys.exit(main())
