"""Our perplexity against llama-perplexity's, on the same file and text: the figures, and the time.

Run: ``python benchmarks/perplexity.py``; needs llama.cpp's tools (``make llama-tools``). For F16, Q4_K_M and Q2_K of
the small model, on the demo's text in windows of 512 tokens: both perplexities and how many times as long ours took.
The time of ours is that of asking alone, the tool's that of the whole process with loading. Exit code 1 when the
figures differ in a digit that the tool prints by more than one unit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from project import PROSE, locked, models, timed

from qlock.world.real import real_world

NAMES = ("F16", "Q4_K_M", "Q2_K")
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


def tool_says(tool: Path, model: Path) -> tuple[str, float]:
    """What llama-perplexity prints, and its wall time in seconds."""
    argv = [str(tool), "-m", str(model), "-f", str(PROSE), "-c", "512", "-b", "512", "-t", "2"]
    start = time.perf_counter()
    done = subprocess.run(
        [*argv, "-ngl", "0", "-fa", "off"], check=True, capture_output=True, text=True, env={"LC_ALL": "C"}
    )
    wall_s = time.perf_counter() - start
    found = re.search(r"Final estimate: PPL = ([0-9.]+)", done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"llama-perplexity printed no estimate:\n{done.stderr[-2000:]}")
    return found[1], wall_s


def main() -> int:
    """Exit code: 0 when all figures agree."""
    word = Path(sys.prefix) / "qlock-toolchain.json"
    tool = Path(json.loads(word.read_text())["llama_cpp_bin"]) / "llama-perplexity"
    apart = 0
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name:
        folder = Path(name)
        (folder / "prose.txt").write_bytes(PROSE.read_bytes())
        for quant, path in models(real_world(), folder, *NAMES).items():
            result = timed(locked(folder, SPEC.format(name=quant, stem=quant.lower())))
            ours = result.ran.scores[0].score.value
            theirs, tool_s = tool_says(tool, path)
            apart += abs(ours - float(theirs)) > 1.01e-4
            print(
                f"{quant}: qlock {ours:.4f}, llama-perplexity {theirs}; "
                f"{result.asking_s:.1f} s and {tool_s:.1f} s, ratio {result.asking_s / tool_s:.2f}"
            )
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
