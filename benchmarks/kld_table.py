"""How far the quants of the small model lie from F16, on WikiText and on its own answers, beside llama-perplexity.

Run: ``python benchmarks/kld_table.py [--windows N]``; needs llama.cpp's tools (``make llama-tools``) and WikiText-2 as
``../shared/data/wikitext2/wiki.test.raw``; without it, it says so and measures nothing. F16, Q8_0, Q6_K, Q4_K_M, Q3_K_M
and Q2_K on 40 windows of 512 tokens, with the reference's log-probabilities in 16 bits as llama-perplexity has them, and
on the answers of F16 to an exam, with the reference beside. It prints

- how many bytes of the kept file are others than in the one that llama-perplexity writes: C's ``expf`` is not always the
  number nearest to the truth, which moves the last bit of a row's head now and then;
- a table of all quants, and llama-perplexity's own figures of the same below each;
- every figure that llama-perplexity prints otherwise.

Exit code 1 where a printed digit differs. Some 25 minutes of processor time.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import passes
from project import ENGINE, models

from qlock.core.distance import Distance
from qlock.core.kld import Kld
from qlock.core.kld_tokens import Estimate
from qlock.core.stats import CannotTell, Interval
from qlock.flows import kinds, resolve, run, traces
from qlock.flows.scores import JobScore
from qlock.world.real import real_world

ROOT = Path(__file__).resolve().parent.parent
WIKITEXT = ROOT.parent / "shared" / "data" / "wikitext2" / "wiki.test.raw"
NAMES = ("F16", "Q8_0", "Q6_K", "Q4_K_M", "Q3_K_M", "Q2_K")
EXAM = ROOT / "specs" / "tasks" / "small.jsonl"

HEAD = """\
spec_version = 1
name = "{name}"
[engine]
path = "{build}"
[[setting]]
name = "plain"
context_tokens = 512
slots = 1
threads = 2
"""
MODEL = '[[model]]\nname = "{name}"\nsource = "file:models/{name}.gguf"\n'
ANSWERS = '[[suite]]\nname = "exam"\nkind = "tasks"\nitems = "file:exam.jsonl"\n[suite.sampling]\nanswer_tokens = 64\n'
SUITES = """\
[[suite]]
name = "wikitext"
kind = "kld"
text = "file:wiki.test.raw"
window_tokens = 512
windows = {windows}
stored = true
[[suite]]
name = "answers"
kind = "kld"
traces = "file:answers.jsonl"
"""
COMPARE = '[compare]\nreference = "F16@plain"\n'


def spec(name: str, folder: Path, text: str, *names: str) -> Path:
    """Write a spec and its lock; gives the lock's path."""
    path = folder / "specs" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    tables = "".join(MODEL.format(name=quant) for quant in names)
    path.write_text(HEAD.format(name=name, build=passes.build()) + tables + text + COMPARE)
    resolved = resolve.resolve(real_world(), resolve.Asked(spec_path=path), kinds.engine_opener(ENGINE))
    resolved.path.parent.mkdir(exist_ok=True)
    resolved.path.write_bytes(resolved.data)
    return resolved.path


def ran(lock: Path) -> run.Ran:
    """Run a lock to its end."""
    done = run.run(
        real_world(), run.Asked(lock_path=lock, frozen=True), kinds.engine_opener(ENGINE), lambda _: None
    )
    if done.state != "sealed":
        raise SystemExit(f"the run is {done.state}: {done.why} {done.findings[:3]}")
    return done


def distance(scores: tuple[JobScore, ...], suite: str, quant: str) -> Distance:
    """Of one quant in one suite."""
    for score in scores:
        if (score.suite, score.point) == (suite, f"{quant}@plain") and isinstance(score.distance, Distance):
            return score.distance
    raise SystemExit(f"{quant} has no distance in {suite}")


def printed(found: Kld) -> dict[str, str]:
    """The figures as llama-perplexity prints them: its words, and its digits."""

    def told(estimate: Estimate, digits: int, *, times: float = 1.0, after: int | None = None) -> str:
        assert isinstance(estimate.token_error, float)
        error = f"{times * estimate.token_error:.{digits if after is None else after}f}"
        return f"{times * estimate.value:.{digits}f} ± {error}"

    at = found.quantiles
    assert isinstance(found.cost_correlation, float)
    return {
        "Mean PPL(Q)": told(found.perplexity, 6),
        "Mean PPL(base)": told(found.reference_perplexity, 6),
        "Cor(ln(PPL(Q)), ln(PPL(base)))": f"{100 * found.cost_correlation:.2f}%",
        "Mean PPL(Q)/PPL(base)": told(found.perplexity_ratio, 6),
        "Mean    KLD": told(found.kld_nats, 6),
        "Maximum KLD": f"{at.maximum:.6f}",
        "99.9%   KLD": f"{at.at_999:.6f}",
        "99.0%   KLD": f"{at.at_99:.6f}",
        "95.0%   KLD": f"{at.at_95:.6f}",
        "90.0%   KLD": f"{at.at_90:.6f}",
        "Median  KLD": f"{at.median:.6f}",
        "Minimum KLD": f"{at.minimum:.6f}",
        "Mean    Δp": f"{told(found.probability_change, 3, times=100)} %",
        "RMS Δp": f"{told(found.probability_change_rms, 3, times=100)} %",
        "Same top p": f"{told(found.same_top_share, 3, times=100)} %",
    }


def theirs(text: str) -> dict[str, str]:
    """What llama-perplexity printed, by its words."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"\s*(.+?)\s*:\s+(\S.*?)\s*", line):
            found[match[1]] = re.sub(r"\s+", " ", match[2])
    return found


def main() -> int:
    """Exit code: 0 when every digit that both print is the same."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=40)
    windows: int = parser.parse_args().windows
    if not WIKITEXT.is_file():
        print(f"not measured: there is no `{WIKITEXT.relative_to(ROOT.parent)}` beside the checkout")
        return 0
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name:
        folder = Path(name)
        (folder / "wiki.test.raw").symlink_to(WIKITEXT)
        (folder / "exam.jsonl").symlink_to(EXAM)
        paths = models(real_world(), folder, *NAMES)
        exam = ran(spec("exam", folder, ANSWERS, "F16"))
        assert exam.folder is not None
        order = traces.Asked(path=exam.folder, suite="exam", output=folder / "answers.jsonl")
        traces.traces(real_world(), order, kinds.engine_opener(ENGINE))
        scores = ran(spec("table", folder, SUITES.format(windows=windows), *NAMES)).scores
        return report(folder, paths, scores, windows)


def report(folder: Path, paths: dict[str, Path], scores: tuple[JobScore, ...], windows: int) -> int:
    """Print it all; gives how many figures differ, at most 1."""
    text = passes.Text(path=folder / "wiki.test.raw", windows=((),) * windows)
    base = folder / "base.kld"
    passes.by_tool(passes.build(), paths["F16"], text, "--save-all-logits", base)
    (kept,) = (folder / "runs").glob("table@*/references/*.kld")
    print(
        f"kept file: {kept.stat().st_size} bytes, {other_bytes(kept, base)} other than in llama-perplexity's"
    )
    print(
        f"\nWikiText-2, {windows} windows of 512 tokens (mean KL with its interval by window, and ± of both)"
    )
    print(
        f"{'':8} {'mean KL':>9} {'95 %':>20} {'±':>9} {'99.9 %':>9} {'max':>9} {'same top':>9} {'perplexity':>11} {'ratio':>9}"
    )
    apart, compared = [], 0
    for quant in NAMES:
        own = distance(scores, "wikitext", quant)
        print(f"{quant:8} {row(own)}")
        if own.is_identical:
            continue
        more = ("--kl-divergence", "--kl-divergence-base", base)
        said = theirs(
            passes.said_by_tool(r"(?s).*\nSame top p: .* %\n", passes.build(), paths[quant], text, *more)[0]
        )
        print(f"{'  llama':8} {their_row(said)}")
        for figure, value in printed(own.figures).items():
            compared += 1
            if said.get(figure) != value:
                apart.append(f"{quant}: {figure}: qlock `{value}`, llama-perplexity `{said.get(figure)}`")
    print("\nF16's own answers to the exam, the reference beside")
    for quant in NAMES:
        print(f"{quant:8} {row(distance(scores, 'answers', quant))}")
    print("\nQ4_K_M on the answers, by what a token is part of")
    for parts in distance(scores, "answers", "Q4_K_M").parts:
        for part in parts.row if parts.by == "token-kind" else ():
            print(
                f"  {part.name:15} {part.tokens:5} tokens  mean KL {part.kld_nats.value:.6f}"
                f"  same top {100 * part.same_top_share:.1f} %"
            )
    print(f"\n{len(apart)} of {compared} printed figures differ")
    print("\n".join(apart))
    return 1 if apart else 0


def other_bytes(ours: Path, tools: Path) -> int:
    """How many bytes of two files differ; all where they are not of one length."""
    a, b = (np.memmap(path, dtype=np.uint8, mode="r") for path in (ours, tools))
    return int(np.count_nonzero(a != b)) if len(a) == len(b) else len(a)


def row(found: Distance) -> str:
    """One line of the table."""
    if found.is_identical:
        return "identical bytes"
    figures = found.figures
    match figures.kld_nats.interval:
        case Interval(low=low, high=high):
            ends = f"{low:.6f} {high:.6f}"
        case CannotTell():
            ends = "cannot tell"
    return (
        f"{figures.kld_nats.value:9.6f} {ends:>20} {figures.kld_nats.token_error:9.6f} "
        f"{figures.quantiles.at_999:9.6f} {figures.quantiles.maximum:9.6f} "
        f"{100 * figures.same_top_share.value:8.3f}% {figures.perplexity.value:11.6f} {figures.perplexity_ratio.value:9.6f}"
    )


def their_row(said: dict[str, str]) -> str:
    """The same of what llama-perplexity printed."""
    mean, _, error = said["Mean    KLD"].partition(" ± ")
    perplexity, ratio = (said[name].partition(" ")[0] for name in ("Mean PPL(Q)", "Mean PPL(Q)/PPL(base)"))
    return (
        f"{mean:>9} {'':>20} {error:>9} {said['99.9%   KLD']:>9} {said['Maximum KLD']:>9} "
        f"{said['Same top p'].partition(' ')[0]:>8}% {perplexity:>11} {ratio:>9}"
    )


if __name__ == "__main__":
    sys.exit(main())
