"""On real llama.cpp: a second model beside the first, and files of kept rows that llama-perplexity takes and gives."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from qlock.core.kept_logits import Layout, head_bytes
from qlock.core.kept_top import Sizes, top_head_bytes
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Done,
    Generate,
    Keep,
    Kept,
    KeptFile,
    Load,
    Measure,
    Measured,
    Work,
)
from qlock.engines.llama_cpp_python import LlamaCppPython
from qlock.errors import EngineError
from tests.fakes.decoder import GREEDY, SETTING
from tests.fakes.tiny_models import BOS, DENSE, VOCAB_TOKENS, write_tiny

pytestmark = pytest.mark.live

ONE_SLOT = msgspec.structs.replace(SETTING, slots=1, threads=2, batch_threads=2)
Tokens = tuple[int, ...]


class Windows(msgspec.Struct, frozen=True):
    """A text cut into windows."""

    text: Path
    size: int
    of_text: tuple[Tokens, ...]
    """As they stand in the text."""
    asked: tuple[Tokens, ...]
    """With BOS in the place of the first token, where the model begins with one."""

    def contrasts(self) -> list[Work]:
        return [
            Contrast(id=f"{n}", tokens=w, score_from=self.size // 2 + 1, pieces=False)
            for n, w in self._numbered
        ]

    def measures(self) -> list[Work]:
        return [Measure(id=f"{n}", tokens=w, score_from=self.size // 2 + 1) for n, w in self._numbered]

    def keeps(self, path: Path) -> list[Work]:
        return [
            Keep(id=f"{n}", tokens=w, score_from=self.size // 2 + 1, path=str(path), part=n)
            for n, w in self._numbered
        ]

    @property
    def _numbered(self) -> list[tuple[int, Tokens]]:
        return list(enumerate(self.asked))


def load_of(model: Path, *, size: int = 64, **changes: object) -> Load:
    setting = msgspec.structs.replace(
        ONE_SLOT, context_tokens=max(size, 256), batch_tokens=size, ubatch_tokens=size
    )
    return Load(weights=(str(model),), setting=msgspec.structs.replace(setting, **changes))


def done_by(engine: LlamaCppPython, works: list[Work]) -> list[Done]:
    for work in works:
        engine.submit(work)
    done = {one.id: one for one in (engine.next_done() for _ in works)}
    return [done[work.id] for work in works]


def contrasted(engine: LlamaCppPython, windows: Windows) -> list[Contrasted]:
    done = [one for one in done_by(engine, windows.contrasts()) if isinstance(one, Contrasted)]
    assert len(done) == len(windows.asked)
    return done


def measured(engine: LlamaCppPython, windows: Windows) -> list[tuple[float, ...]]:
    return [one.nats for one in done_by(engine, windows.measures()) if isinstance(one, Measured)]


def cut(engine: LlamaCppPython, text: Path, *, size: int, count: int, add_bos: bool) -> Windows:
    (tokens,) = engine.tokenize([text.read_text(encoding="utf-8")], add_special=True, parse_special=False)
    of_text = tuple(tokens[size * n : size * (n + 1)] for n in range(count))
    assert len(of_text[-1]) == size
    asked = tuple((BOS, *window[1:]) if add_bos else window for window in of_text)
    return Windows(text=text, size=size, of_text=of_text, asked=asked)


def begun(path: Path, windows: Windows, *, vocab_tokens: int) -> Path:
    """A file with its head and no rows."""
    layout = Layout(window_tokens=windows.size, vocab_tokens=vocab_tokens, parts=len(windows.of_text))
    path.write_bytes(head_bytes(layout, np.array(windows.of_text, dtype=np.int32)))
    return path


def tool(llama_bin: Path, model: Path, windows: Windows, *more: str | Path) -> str:
    """What llama-perplexity prints on stdout."""
    argv: list[str | Path] = [
        llama_bin / "llama-perplexity",
        "-m",
        model,
        "-f",
        windows.text,
        "-c",
        str(windows.size),
    ]
    argv += ["-b", str(windows.size), "-t", "2", "--chunks", str(len(windows.asked))]
    argv += ["-fa", "off", "-ngl", "0", "--fit", "off", *more]
    environment = {"LC_ALL": "C", "HOME": str(windows.text.parent), "GOMP_SPINCOUNT": "1000"}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        argv, check=True, env=environment, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with other weights."""
    shape = msgspec.structs.replace(DENSE, seed=5)
    return write_tiny(tmp_path_factory.mktemp("models") / "other.gguf", shape)


@pytest.fixture
def windows(shared_engine: LlamaCppPython, tiny: Path, tmp_path: Path) -> Windows:
    """Eight windows of 64 tokens, each with BOS in front; the tiny model is loaded."""
    text = tmp_path / "text.txt"
    text.write_text("the sea is near the old town and the rain is warm in may. " * 30, encoding="utf-8")
    shared_engine.load(load_of(tiny))
    return cut(shared_engine, text, size=64, count=8, add_bos=True)


def test_each_of_two_models_gives_the_costs_that_it_gives_alone(
    shared_engine: LlamaCppPython, tiny: Path, other: Path, windows: Windows
) -> None:
    mine = measured(shared_engine, windows)
    shared_engine.load(load_of(other))
    theirs = measured(shared_engine, windows)
    shared_engine.load(load_of(tiny))
    read_back = shared_engine.refer(load_of(other))
    assert read_back is not None
    assert read_back.vocab_tokens == VOCAB_TOKENS
    done = contrasted(shared_engine, windows)
    assert [one.nats for one in done] == mine
    assert [one.reference_nats for one in done] == theirs
    assert measured(shared_engine, windows) == mine
    shared_engine.load(load_of(other))
    shared_engine.refer(load_of(tiny))
    back = contrasted(shared_engine, windows)
    assert [one.kld_nats for one in back] == [one.reverse_kld_nats for one in done]
    assert min(value for one in done for value in one.kld_nats) > 0.01


def test_costs_stay_the_same_where_the_reference_reads_in_other_pieces(
    shared_engine: LlamaCppPython, other: Path, windows: Windows
) -> None:
    mine = measured(shared_engine, windows)
    in_pieces = load_of(other, batch_tokens=24, ubatch_tokens=24)
    shared_engine.refer(in_pieces)
    done = contrasted(shared_engine, windows)
    shared_engine.load(in_pieces)
    assert [one.nats for one in done] == mine
    assert [one.reference_nats for one in done] == measured(shared_engine, windows)


def test_a_model_that_both_have_is_loaded_once(
    shared_engine: LlamaCppPython, tiny: Path, other: Path, windows: Windows
) -> None:
    def maps(path: Path) -> int:
        return Path(f"/proc/{shared_engine.pid}/maps").read_text().count(f"{path}\n")

    quantized = load_of(tiny, cache_type_k="q8_0", slots=2)
    read_back = shared_engine.load(quantized)
    theirs = measured(shared_engine, windows)
    shared_engine.load(load_of(tiny))
    mine, before = measured(shared_engine, windows), maps(tiny)
    assert shared_engine.refer(quantized) == read_back
    assert maps(tiny) == before
    done = contrasted(shared_engine, windows)
    assert [one.nats for one in done] == mine
    assert [one.reference_nats for one in done] == theirs
    assert max(value for one in done for value in one.kld_nats) > 1e-5
    # The model outlives a reference that was a guest of it, and is let go of with the point.
    shared_engine.refer(load_of(other))
    assert measured(shared_engine, windows) == mine
    shared_engine.load(load_of(other))
    assert maps(tiny) == 0


def test_the_likeliest_tokens_of_a_real_engine_bound_its_divergence(
    shared_engine: LlamaCppPython, tiny: Path, other: Path, windows: Windows, tmp_path: Path
) -> None:
    path, first = tmp_path / "a.top", windows.size // 2 + 1
    sizes = Sizes(vocab_tokens=VOCAB_TOKENS, parts=len(windows.of_text), kept_tokens=200)
    path.write_bytes(top_head_bytes(sizes, [(window, first) for window in windows.of_text]))
    shared_engine.load(load_of(other))
    kept = [one for one in done_by(shared_engine, windows.keeps(path)) if isinstance(one, Kept)]
    assert [one.nats for one in kept] == measured(shared_engine, windows)
    shared_engine.load(load_of(tiny))
    shared_engine.refer(load_of(other))
    true = contrasted(shared_engine, windows)
    shared_engine.refer(KeptFile(path=str(path)))
    for one, exact in zip(contrasted(shared_engine, windows), true, strict=True):
        assert (one.nats, one.same_top) == (exact.nats, exact.same_top)
        for least, slack, value in zip(one.kld_nats, one.kld_slack_nats, exact.kld_nats, strict=True):
            assert least - 1e-6 <= value <= least + slack + 1e-6


def test_answers_under_way_are_not_disturbed(
    shared_engine: LlamaCppPython, tiny: Path, windows: Windows
) -> None:
    sampling = msgspec.structs.replace(GREEDY, answer_tokens=40)
    asked = [
        Generate(id=f"g{n}", tokens=(BOS, 70 + n), sampling=sampling, logprobs=True, logits_digest=True)
        for n in range(4)
    ]
    wide = load_of(tiny, slots=4)
    shared_engine.load(wide)
    alone = [untimed(one) for one in done_by(shared_engine, [*asked])]
    shared_engine.refer(wide)
    mixed = done_by(shared_engine, [asked[0], *windows.contrasts()[:2], asked[1], asked[2], asked[3]])
    assert [untimed(one) for one in mixed if one.id.startswith("g")] == alone


def untimed(done: Done) -> bytes:
    kept = msgspec.to_builtins(done)
    return msgspec.json.encode({name: kept[name] for name in ("id", "tokens", "logprobs", "logits_digest")})


def test_a_model_is_exactly_zero_apart_from_itself(
    shared_engine: LlamaCppPython, tiny: Path, windows: Windows
) -> None:
    again = load_of(tiny)
    assert shared_engine.refer(again) == shared_engine.load(again)
    shared_engine.refer(again)
    for beside in (again, load_of(tiny, batch_threads=1)):
        shared_engine.refer(beside)
        for one in contrasted(shared_engine, windows):
            assert set(one.kld_nats) == set(one.reverse_kld_nats) == {0.0}
            assert set(one.same_top) == {True}
            assert one.nats == one.reference_nats


def test_a_load_forgets_the_reference(
    shared_engine: LlamaCppPython, tiny: Path, other: Path, windows: Windows
) -> None:
    shared_engine.refer(load_of(other))
    shared_engine.load(load_of(tiny))
    assert done_by(shared_engine, windows.contrasts()[:1]) == [Broken(id="0", why="no reference was named")]


def test_what_cannot_be_a_reference_is_refused_and_the_point_stays(
    shared_engine: LlamaCppPython, smollm2_q4_1: Path, windows: Windows, tmp_path: Path
) -> None:
    mine = measured(shared_engine, windows)
    with pytest.raises(EngineError) as caught:
        shared_engine.refer(load_of(smollm2_q4_1))
    assert caught.value.message == (
        "the engine could not load the reference: the vocabularies differ in size:"
        f" got `49152` tokens of the reference, expected `{VOCAB_TOKENS}`"
    )
    with pytest.raises(EngineError, match=r"could not load the reference: llama\.cpp could not load `"):
        shared_engine.refer(load_of(tmp_path / "gone.gguf"))
    with pytest.raises(EngineError) as caught:
        shared_engine.refer(KeptFile(path=f"{tmp_path}/gone.kld"))
    assert caught.value.message == (
        f"the engine could not load the reference: cannot open `{tmp_path}/gone.kld`: no such file or directory"
    )
    other = begun(tmp_path / "a.kld", windows, vocab_tokens=30)
    with other.open("ab") as file:
        file.truncate(Layout(window_tokens=64, vocab_tokens=30, parts=8).total_bytes)
    with pytest.raises(EngineError) as caught:
        shared_engine.refer(KeptFile(path=str(other)))
    assert caught.value.message == (
        "the engine could not load the reference: the vocabularies differ in size:"
        f" got `30` tokens in the kept file, expected `{VOCAB_TOKENS}`"
    )
    assert done_by(shared_engine, windows.contrasts()[:1]) == [Broken(id="0", why="no reference was named")]
    assert measured(shared_engine, windows) == mine


def test_nothing_is_referred_to_while_work_is_under_way(
    shared_engine: LlamaCppPython, tiny: Path, windows: Windows
) -> None:
    (work, *_) = windows.measures()
    shared_engine.submit(work)
    with pytest.raises(ValueError, match=r"^cannot name a reference while work is under way$"):
        shared_engine.refer(load_of(tiny))
    shared_engine.next_done()


def test_kept_files_of_a_tiny_model_with_bos_are_llama_perplexitys_own(
    shared_engine: LlamaCppPython, llama_bin: Path, tiny: Path, other: Path, windows: Windows
) -> None:
    hold_against_the_tool(shared_engine, llama_bin, windows, reference=tiny, model=other)


@pytest.fixture
def prose(shared_engine: LlamaCppPython, smollm2_q4_1: Path, shared_data: Path, tmp_path: Path) -> Windows:
    """Three windows of 512 tokens of a real text; the real model is loaded."""
    text = tmp_path / "wiki.raw"
    text.write_bytes((shared_data / "wikitext2" / "wiki.test.raw").read_bytes()[:12_000])
    shared_engine.load(load_of(smollm2_q4_1, size=512))
    return cut(shared_engine, text, size=512, count=3, add_bos=False)


@pytest.mark.slow
def test_kept_files_of_a_real_model_are_llama_perplexitys_own(
    shared_engine: LlamaCppPython, llama_bin: Path, smollm2_q4_1: Path, smollm2_q2_k: Path, prose: Windows
) -> None:
    hold_against_the_tool(shared_engine, llama_bin, prose, reference=smollm2_q4_1, model=smollm2_q2_k)


def hold_against_the_tool(
    engine: LlamaCppPython, llama_bin: Path, windows: Windows, *, reference: Path, model: Path
) -> None:
    """The file that the tool writes is ours, byte for byte; its figures out of it are ours, digit for digit."""
    folder = windows.text.parent
    vocabulary = engine.load(load_of(reference, size=windows.size)).vocab_tokens
    mine, theirs = begun(folder / "mine.kld", windows, vocab_tokens=vocabulary), folder / "theirs.kld"
    alone = measured(engine, windows)
    kept = [one for one in done_by(engine, windows.keeps(mine)) if isinstance(one, Kept)]
    assert [one.nats for one in kept] == alone
    tool(llama_bin, reference, windows, "--kl-divergence-base", theirs)
    assert mine.read_bytes() == theirs.read_bytes()
    printed = closing_block(llama_bin, model, windows, mine)
    engine.load(load_of(model, size=windows.size))
    assert engine.refer(KeptFile(path=str(theirs))) is None
    found = contrasted(engine, windows)
    assert statistics(found) == printed


def closing_block(llama_bin: Path, model: Path, windows: Windows, kept: Path) -> list[str]:
    """The lines that the tool ends with.

    It writes from a thread of its own and may end, with exit code 0, before that has written all; then it is run again.
    """
    for _ in range(20):
        printed = tool(llama_bin, model, windows, "--kl-divergence-base", kept, "--kl-divergence")
        block = re.search(
            r"^====== Perplexity statistics ======\n(?:.*\n)*Same top p: .* %$", printed, re.MULTILINE
        )
        if block:
            return block[0].split("\n")
    raise AssertionError(printed)


def statistics(found: list[Contrasted]) -> list[str]:
    """The closing block of ``llama-perplexity --kl-divergence``, by its own formulas."""
    nats, base = (
        np.array([value for one in found for value in getattr(one, name)], dtype=np.float32)
        for name in ("nats", "reference_nats")
    )
    kld = np.array([value for one in found for value in one.kld_nats])
    change = np.exp(-nats) - np.exp(-base)
    mine, theirs = mean_of(nats), mean_of(base)
    count = len(nats)
    product = float((nats * base).mean(dtype=np.float64))
    covariance = (product - float(nats.mean(dtype=np.float64) * base.mean(dtype=np.float64))) / (count - 1)
    ratio = mine[0] - theirs[0]
    ratio_error = math.sqrt(mine[1] ** 2 + theirs[1] ** 2 - 2 * covariance)
    ppl, ppl_base = math.exp(mine[0]), math.exp(theirs[0])
    ppl_error, base_error = ppl * mine[1], ppl_base * theirs[1]
    difference_error = math.sqrt(ppl_error**2 + base_error**2 - 2 * ppl * ppl_base * covariance)
    square, square_error = mean_of((change * change).astype(np.float64))
    rms = math.sqrt(square)
    top = float(np.mean([value for one in found for value in one.same_top]))
    return [
        "====== Perplexity statistics ======",
        f"Mean PPL(Q)                   : {ppl:10.6f} ± {ppl_error:10.6f}",
        f"Mean PPL(base)                : {ppl_base:10.6f} ± {base_error:10.6f}",
        f"Cor(ln(PPL(Q)), ln(PPL(base))): {100 * covariance / (mine[1] * theirs[1]):6.2f}%",
        f"Mean ln(PPL(Q)/PPL(base))     : {ratio:10.6f} ± {ratio_error:10.6f}",
        f"Mean PPL(Q)/PPL(base)         : {math.exp(ratio):10.6f} ± {math.exp(ratio) * ratio_error:10.6f}",
        f"Mean PPL(Q)-PPL(base)         : {ppl - ppl_base:10.6f} ± {difference_error:10.6f}",
        "",
        "====== KL divergence statistics ======",
        "Mean    KLD: {:10.6f} ± {:10.6f}".format(*mean_of(kld)),
        *quantiles("KLD", kld.astype(np.float32), unit=1, form="10.6f", sign=""),
        "",
        "====== Token probability statistics ======",
        "Mean    Δp: {:6.3f} ± {:5.3f} %".format(*(100 * value for value in mean_of(change))),
        *quantiles("Δp", change, unit=100, form="6.3f", sign="%"),
        f"RMS Δp    : {100 * rms:6.3f} ± {100 * 0.5 / rms * square_error:5.3f} %",
        f"Same top p: {100 * top:6.3f} ± {100 * math.sqrt(top * (1 - top) / (count - 1)):5.3f} %",
    ]


def mean_of(values: NDArray[np.float32] | NDArray[np.float64]) -> tuple[float, float]:
    """Mean and its error; squares are rounded as the values are."""
    count, mean = len(values), float(values.mean(dtype=np.float64))
    square = float((values * values).mean(dtype=np.float64))
    return mean, math.sqrt(max(0.0, square - mean**2) / (count - 1))


def quantiles(name: str, values: NDArray[np.float32], *, unit: int, form: str, sign: str) -> list[str]:
    ordered = np.sort(values)
    rows = [("Maximum", ordered[-1])]
    rows += [(f"{share:4}%  ", quantile(ordered, share)) for share in (99.9, 99.0, 95.0, 90.0)]
    if name == "Δp":
        rows.append(("75.0%  ", quantile(ordered, 75.0)))
    middle = len(ordered) // 2
    median = (
        ordered[middle] if len(ordered) % 2 else np.float32(0.5) * (ordered[middle] + ordered[middle - 1])
    )
    rows.append(("Median ", median))
    if name == "Δp":
        rows.append(("25.0%  ", quantile(ordered, 25.0)))
    rows += [(f"{share:4}%  ", quantile(ordered, share)) for share in (10.0, 5.0, 1.0, 0.1)]
    rows.append(("Minimum", ordered[0]))
    return [f"{label} {name}: {unit * float(value):{form}}{sign}" for label, value in rows]


def quantile(ordered: NDArray[np.float32], share: float) -> np.float32:
    """In float32 throughout."""
    place = np.float32(share / 100) * np.float32(len(ordered) - 1)
    below = int(place)
    part = np.float32(place - np.float32(below))
    above = min(below + 1, len(ordered) - 1)
    return np.float32((np.float32(1) - part) * ordered[below] + part * ordered[above])
