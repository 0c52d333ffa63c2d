"""KL divergence side by side against what it is made of: two passes of perplexity; and against llama-perplexity's own.

Run: ``python benchmarks/kld.py``; needs llama.cpp's tools (``make llama-tools``). The small model in Q4_K_M against F16
on three windows of 512 tokens of the demo's text, one build, two threads, and ``ubatch_tokens = 128`` for ours. It prints,
from five rounds in which everything takes its turn:

- perplexity: how many times as long ours takes as llama-perplexity (at most 1.02);
- KL side by side: how many times as long as the two passes of perplexity, ours and llama-perplexity's (at most 1.05);
- the engine's peak memory beyond the two models as llama.cpp holds them (at most 300 MB), and what of it is logits, which
  two contexts of llama.cpp hold twice each; the same with the default of 512 for ``ubatch_tokens``, without a limit;
- the mean KL of both ways, ours side by side and the tool's from 16 bits.

Times are medians of wall time and of processor time, loading left out. Where the machine has other things to do, look at
the processor time, or put ``chrt -f 5`` in front of the command. Exit code 1 where a ratio is above its limit in both,
the memory is above its own, or the figures are more than the rounding to 16 bits apart.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import passes
from project import PROSE, models

from qlock.engines.interface import Contrasted, Load
from qlock.engines.llama_cpp_python import LlamaCppPython, open_engine
from qlock.world.real import real_world

ROUNDS = 5
WINDOWS = 3
MOST_TIMES_OF_A_PASS = 1.02
MOST_TIMES_OF_TWO = 1.05
MOST_APART_NATS = 3e-4
MOST_BEYOND_BYTES = 300_000_000
UBATCH_TOKENS = 128
MIB = 1 << 20
OURS, TOOL = ("ours F16", "ours Q4_K_M"), ("tool F16", "tool Q4_K_M")
LIMITS = (
    ("perplexity of F16, to llama-perplexity", MOST_TIMES_OF_A_PASS, OURS[:1], TOOL[:1]),
    ("perplexity of Q4_K_M, to llama-perplexity", MOST_TIMES_OF_A_PASS, OURS[1:], TOOL[1:]),
    ("KL side by side, to our two passes", MOST_TIMES_OF_TWO, ("kld",), OURS),
    ("KL side by side, to llama-perplexity's two", MOST_TIMES_OF_TWO, ("kld",), TOOL),
)


def one_round(
    engine: LlamaCppPython, folder: Path, paths: dict[str, Path], text: passes.Text
) -> dict[str, passes.Pass]:
    """Each pass once; Q4_K_M comes last and stays loaded."""
    found = {}
    for name, path in paths.items():
        found[f"tool {name}"] = passes.by_tool(folder, path, text)
        engine.load(_load_of(path))
        found[f"ours {name}"] = passes.by_engine(engine, text.measures())
    engine.refer(_load_of(paths["F16"]))
    found["kld"] = passes.by_engine(engine, text.contrasts())
    return found


def total(passed: dict[str, passes.Pass], names: tuple[str, ...]) -> passes.Pass:
    """Of some passes of a round."""
    first, *others = (passed[name] for name in names)
    return sum(others, start=first)


def memory(folder: Path, paths: dict[str, Path], text: passes.Text, *, ubatch_tokens: int) -> int:
    """The peak of an engine that does nothing else, beyond the models, in bytes; it is printed too."""
    first, second = (_load_of(paths[name], ubatch_tokens=ubatch_tokens) for name in ("F16", "Q4_K_M"))
    with open_engine(lib_folder=folder) as engine:
        vocabulary = engine.load(first).vocab_tokens
        held = sum(buffer.size_bytes for buffer in engine.memory() if buffer.use == "model")
        engine.load(second)
        held += sum(buffer.size_bytes for buffer in engine.memory() if buffer.use == "model")
    with open_engine(lib_folder=folder) as engine:
        engine.load(second)
        engine.refer(first)
        passes.by_engine(engine, text.contrasts())
        peak = passes.peak_bytes(engine.pid)
    rows = passes.WINDOW_TOKENS // 2
    logits = 2 * (rows + min(rows, ubatch_tokens)) * vocabulary * 4
    print(
        f"peak memory side by side, ubatch_tokens = {ubatch_tokens}: {peak / MIB:.0f} MiB,"
        f" {(peak - held) / 1e6:.0f} MB beyond the models' {held / MIB:.0f} MiB;"
        f" {logits / 1e6:.0f} MB of it are logits in llama.cpp's own buffers"
    )
    return peak - held


def _load_of(model: Path, *, ubatch_tokens: int = UBATCH_TOKENS) -> Load:
    return passes.load_of(model, ubatch_tokens=ubatch_tokens)


def tool_kld(folder: Path, paths: dict[str, Path], text: passes.Text) -> float:
    """The mean that llama-perplexity prints."""
    kept = text.path.with_name("base.kld")
    passes.by_tool(folder, paths["F16"], text, "--kl-divergence-base", kept)
    more = ("--kl-divergence-base", kept, "--kl-divergence")
    return float(passes.said_by_tool(r"Mean +KLD: +([0-9.]+)", folder, paths["Q4_K_M"], text, *more)[1])


def main() -> int:
    """Exit code: 0 when every ratio keeps its limit and the figures agree."""
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name:
        home, folder = Path(name), passes.build()
        prose = home / "prose.txt"
        prose.write_bytes(PROSE.read_bytes())
        paths = models(real_world(), home, "F16", "Q4_K_M")
        with open_engine(lib_folder=folder) as engine:
            engine.load(_load_of(paths["F16"]))
            text = passes.cut(engine, prose, most=WINDOWS)
            rounds = [one_round(engine, folder, paths, text) for _ in range(ROUNDS)]
        beyond = memory(folder, paths, text, ubatch_tokens=UBATCH_TOKENS)
        memory(folder, paths, text, ubatch_tokens=512)
        theirs = tool_kld(folder, paths, text)
    print(f"beyond the models: {beyond / 1e6:.0f} MB, at most {MOST_BEYOND_BYTES / 1e6:.0f}")
    slow = False
    for what, most, over, under in LIMITS:
        wall, cpu = passes.ratios([(total(one, over), total(one, under)) for one in rounds])
        slow |= min(wall, cpu) > most
        print(f"{what}: {wall:.3f} times the wall time, {cpu:.3f} times the processor time, at most {most}")
    nats = [value for one in rounds[0]["kld"].done if isinstance(one, Contrasted) for value in one.kld_nats]
    ours = math.fsum(nats) / len(nats)
    print(f"mean KL of {len(nats)} tokens: {ours:.6f} nats side by side, {theirs:.6f} llama-perplexity's")
    missed = slow or beyond > MOST_BEYOND_BYTES or abs(ours - theirs) > MOST_APART_NATS
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
