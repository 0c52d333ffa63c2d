"""One pass over a text's windows, by the embedded engine or by llama-perplexity, for the other scripts.

Both use the libraries of one build, the same threads and the same windows. Loading is in neither time: the engine's
begins when the first window is handed to it, the tool's when it says that it calculates. Run by itself it prints
nothing.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from qlock.core.facts import Setting
from qlock.core.spec import SettingSpec
from qlock.engines.interface import Broken, Contrast, Done, Load, Measure, Work
from qlock.engines.llama_cpp_python import LlamaCppPython
from qlock.flows import pinning

WINDOW_TOKENS = 512
SCORE_FROM = WINDOW_TOKENS // 2 + 1
_TRIES = 10
_TICKS = os.sysconf("SC_CLK_TCK")


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass took, and what came of it."""

    wall_s: float
    cpu_s: float
    done: tuple[Done, ...] = ()
    printed: str = ""

    def __add__(self, other: Pass) -> Pass:
        return Pass(wall_s=self.wall_s + other.wall_s, cpu_s=self.cpu_s + other.cpu_s)


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A text in windows."""

    path: Path
    windows: tuple[tuple[int, ...], ...]

    def measures(self) -> list[Work]:
        """Each window to be scored."""
        return [
            Measure(id=f"{number}", tokens=window, score_from=SCORE_FROM)
            for number, window in enumerate(self.windows)
        ]

    def contrasts(self) -> list[Work]:
        """Each window to be held against the reference."""
        return [
            Contrast(id=f"{number}", tokens=window, score_from=SCORE_FROM, pieces=False)
            for number, window in enumerate(self.windows)
        ]


def build() -> Path:
    """The folder of the tools and their libraries."""
    word = Path(sys.prefix) / "qlock-toolchain.json"
    return Path(json.loads(word.read_text())["llama_cpp_bin"])


def load_of(model: Path, *, ubatch_tokens: int = 512) -> Load:
    """With one slot, two threads, and qlock's own defaults."""
    asked = SettingSpec(
        name="plain", context_tokens=WINDOW_TOKENS, slots=1, threads=2, ubatch_tokens=ubatch_tokens
    )
    setting: Setting = pinning.setting(asked, None, engine="llama-cpp-python")
    return Load(weights=(str(model),), setting=setting)


def cut(engine: LlamaCppPython, path: Path, *, most: int = 1 << 30) -> Text:
    """The first windows of a text in the loaded model's tokens; that model must begin with no BOS."""
    (tokens,) = engine.tokenize([path.read_text()], add_special=True, parse_special=False)
    whole = min(most, len(tokens) // WINDOW_TOKENS)
    windows = tuple(tokens[n * WINDOW_TOKENS : (n + 1) * WINDOW_TOKENS] for n in range(whole))
    return Text(path=path, windows=windows)


def by_engine(engine: LlamaCppPython, works: Sequence[Work]) -> Pass:
    """Do all of it."""
    cpu_s, start_s = _cpu_s(engine.pid), time.perf_counter()
    for work in works:
        engine.submit(work)
    done = tuple(engine.next_done() for _ in works)
    wall_s = time.perf_counter() - start_s
    broken = [one.why for one in done if isinstance(one, Broken)]
    if broken:
        raise SystemExit(f"the engine could not do it: {broken[0]}")
    return Pass(wall_s=wall_s, cpu_s=_cpu_s(engine.pid) - cpu_s, done=done)


def by_tool(folder: Path, model: Path, text: Text, *more: str | Path) -> Pass:
    """Run llama-perplexity over the same windows."""
    argv: list[str | Path] = [folder / "llama-perplexity", "-m", model, "-f", text.path]
    argv += ["-c", str(WINDOW_TOKENS), "-b", str(WINDOW_TOKENS), "-t", "2", "-ngl", "0", "-fa", "off"]
    argv += ["--chunks", str(len(text.windows)), "--fit", "off", *more]
    # Threads that spin for milliseconds would measure what else the machine has to do; the engine's do not either.
    environment = {"LC_ALL": "C", "HOME": str(text.path.parent), "GOMP_SPINCOUNT": "1000"}
    tool = subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert tool.stdout is not None
    printed, began = [], None
    for line in tool.stdout:
        printed.append(line)
        if began is None and re.search(r"(calculating perplexity|computing) over", line):
            began = _cpu_s(tool.pid), time.perf_counter()
    _, _, used = os.wait4(tool.pid, 0)
    wall_s, tool.returncode = time.perf_counter(), 0
    if began is None:
        raise SystemExit("llama-perplexity did not calculate:\n" + "".join(printed)[-2000:])
    return Pass(
        wall_s=wall_s - began[1], cpu_s=used.ru_utime + used.ru_stime - began[0], printed="".join(printed)
    )


def said_by_tool(wanted: str, folder: Path, model: Path, text: Text, *more: str | Path) -> re.Match[str]:
    """What the tool prints, as found by a pattern of its last lines.

    It writes from a thread of its own and may end, with exit code 0, before that has written all; then it is run again.
    """
    for _ in range(_TRIES):
        printed = by_tool(folder, model, text, *more).printed
        found = re.search(wanted, printed)
        if found:
            return found
    raise SystemExit(f"llama-perplexity did not print all:\n{printed[-2000:]}")


def ratios(pairs: Sequence[tuple[Pass, Pass]]) -> tuple[float, float]:
    """Medians over pairs of how many times as long the first took: wall time, processor time."""
    return (
        statistics.median(one.wall_s / other.wall_s for one, other in pairs),
        statistics.median(one.cpu_s / other.cpu_s for one, other in pairs),
    )


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had at once, files that it maps included."""
    return int(_field(pid, "VmHWM")) * 1024


def _field(pid: int, name: str) -> str:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
