"""What the compact form of kept log-probabilities costs: what is missing of the KL divergence, and its size.

Run: ``python benchmarks/kept_top.py``. The small model in F16 is kept with its likeliest 1024, 4096 and 8192 tokens of
each row, on three windows of 512 tokens of the demo's text; Q8_0, Q4_K_M and Q2_K are held against that, and against F16
itself. For each it prints the mean KL, how much of it the compact form misses, the mean of what it may miss at most by
its guarantee, and the size of its rows beside those of llama-perplexity's format. Exit code 1 where a token's KL lies
outside of its bounds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import passes
from project import PROSE, models

from qlock.core.kept_logits import Layout
from qlock.core.kept_top import Sizes, top_head_bytes, top_layout_in
from qlock.engines.interface import Contrasted, Keep, KeptFile, Work
from qlock.engines.llama_cpp_python import LlamaCppPython, open_engine
from qlock.world.real import real_world

QUANTS = ("Q8_0", "Q4_K_M", "Q2_K")
KEPT_TOKENS = (1024, 4096, 8192)
WINDOWS = 3
ROUNDING_NATS = 1e-6


def write(engine: LlamaCppPython, path: Path, text: passes.Text, sizes: Sizes) -> float:
    """Keep the loaded model's rows; gives how much smaller they are than whole ones, as a share."""
    parts = [(window, passes.SCORE_FROM) for window in text.windows]
    head = top_head_bytes(sizes, parts)
    path.write_bytes(head)
    works: list[Work] = [
        Keep(id=f"{part}", tokens=window, score_from=first, path=str(path), part=part)
        for part, (window, first) in enumerate(parts)
    ]
    passes.by_engine(engine, works)
    shapes = [(len(window), first) for window, first in parts]
    layout = top_layout_in(sizes, b"".join(one.to_bytes(4, "little") for shape in shapes for one in shape))
    whole = Layout(window_tokens=passes.WINDOW_TOKENS, vocab_tokens=sizes.vocab_tokens, parts=1)
    return layout.row_bytes / whole.row_bytes


def contrasted(engine: LlamaCppPython, text: passes.Text) -> Contrasted:
    """All windows as one."""
    done = [one for one in passes.by_engine(engine, text.contrasts()).done if isinstance(one, Contrasted)]
    return Contrasted(
        id="",
        nats=(),
        reference_nats=(),
        kld_nats=tuple(value for one in done for value in one.kld_nats),
        reverse_kld_nats=(),
        same_top=(),
        kld_slack_nats=tuple(value for one in done for value in one.kld_slack_nats),
        pieces=(),
        elapsed_s=0.0,
    )


def mean(values: tuple[float, ...]) -> float:
    """Of one number per token."""
    return sum(values) / len(values)


def main() -> int:
    """Exit code: 0 when every bound holds."""
    outside = 0
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name, open_engine() as engine:
        home = Path(name)
        prose = home / "prose.txt"
        prose.write_bytes(PROSE.read_bytes())
        paths = models(real_world(), home, "F16", *QUANTS)
        vocabulary = engine.load(passes.load_of(paths["F16"])).vocab_tokens
        text = passes.cut(engine, prose, most=WINDOWS)
        shares = {}
        for kept_tokens in KEPT_TOKENS:
            sizes = Sizes(vocab_tokens=vocabulary, parts=len(text.windows), kept_tokens=kept_tokens)
            shares[kept_tokens] = write(engine, home / f"{kept_tokens}.top", text, sizes)
        for quant in QUANTS:
            engine.load(passes.load_of(paths[quant]))
            engine.refer(passes.load_of(paths["F16"]))
            true = contrasted(engine, text).kld_nats
            for kept_tokens, share in shares.items():
                engine.refer(KeptFile(path=str(home / f"{kept_tokens}.top")))
                found = contrasted(engine, text)
                for least, slack, exact in zip(found.kld_nats, found.kld_slack_nats, true, strict=True):
                    outside += not least - ROUNDING_NATS <= exact <= least + slack + ROUNDING_NATS
                missing = 1 - mean(found.kld_nats) / mean(true)
                print(
                    f"{quant}, {kept_tokens} of {vocabulary} tokens: mean KL {mean(true):.6f} nats,"
                    f" {100 * missing:.1f} % of it missing, {mean(found.kld_slack_nats):.3f} nats at most;"
                    f" rows of {100 * share:.0f} % of the size"
                )
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
