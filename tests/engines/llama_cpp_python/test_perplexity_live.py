"""Nats of the embedded engine against llama-perplexity of the same build, digit for digit."""

from __future__ import annotations

import math
import re
import subprocess
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest

from qlock.engines.interface import Load, Measure, Measured
from qlock.engines.llama_cpp_python import LlamaCppPython
from tests.fakes.decoder import SETTING

pytestmark = [pytest.mark.live, pytest.mark.slow]

WINDOW_TOKENS = 512
WINDOWS = 8


@pytest.fixture(scope="module")
def text(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of the text: what the tool reads of it, and little more."""
    path = tmp_path_factory.mktemp("text") / "wiki.raw"
    path.write_bytes((shared_data / "wikitext2" / "wiki.test.raw").read_bytes()[:30_000])
    return path


def printed(llama_bin: Path, model: Path, text: Path) -> tuple[str, str]:
    """The running values and the last line that the tool prints."""
    done = subprocess.run(
        [
            *(
                llama_bin / "llama-perplexity",
                "-m",
                model,
                "-f",
                text,
                "-c",
                str(WINDOW_TOKENS),
                "-b",
                "2048",
            ),
            *("-t", "2", "--chunks", str(WINDOWS), "-fa", "off", "-ngl", "0", "--fit", "off"),
        ],
        check=True,
        env={"LC_ALL": "C", "HOME": str(text.parent), "GOMP_SPINCOUNT": "1000"},
        capture_output=True,
        text=True,
    )
    (running,) = re.findall(r"(?:\[\d+\][\d.]+,)+", done.stdout)
    (last,) = re.findall(r"PPL = .*", done.stderr)
    return running, last


@pytest.mark.parametrize("name", ["smollm2_q4_1", "smollm2_q4_k_m"])
def test_every_digit_that_llama_perplexity_prints_is_ours(
    shared_engine: LlamaCppPython, request: pytest.FixtureRequest, llama_bin: Path, text: Path, name: str
) -> None:
    model: Path = request.getfixturevalue(name)
    setting = msgspec.structs.replace(
        SETTING, context_tokens=WINDOW_TOKENS, batch_tokens=512, ubatch_tokens=512, slots=1
    )
    shared_engine.load(Load(weights=(str(model),), setting=setting))
    (tokens,) = shared_engine.tokenize(
        [text.read_text(encoding="utf-8")], add_special=True, parse_special=False
    )
    for number in range(WINDOWS):
        window = tokens[number * WINDOW_TOKENS : (number + 1) * WINDOW_TOKENS]
        shared_engine.submit(Measure(id=f"{number}", tokens=window, score_from=WINDOW_TOKENS // 2 + 1))
    nats: list[tuple[float, ...]] = []
    for _ in range(WINDOWS):
        done = shared_engine.next_done()
        assert isinstance(done, Measured)
        nats.append(done.nats)
    assert {len(window) for window in nats} == {255}
    running = [
        math.exp(total / (255 * (number + 1)))
        for number, total in enumerate(accumulate(map(math.fsum, nats)))
    ]
    flat = [value for window in nats for value in window]
    mean = math.fsum(flat) / len(flat)
    spread = math.sqrt((math.fsum(value**2 for value in flat) / len(flat) - mean**2) / (len(flat) - 1))
    ours = (
        "".join(f"[{number}]{value:.4f}," for number, value in enumerate(running, start=1)),
        f"PPL = {running[-1]:.4f} +/- {running[-1] * spread:.5f}",
    )
    assert ours == printed(llama_bin, model, text)
