"""What llama-perplexity prints of the beginning of a text, and an engine asked for the same."""

from __future__ import annotations

import math
import re
import subprocess
from itertools import accumulate
from pathlib import Path

from qlock.engines.interface import Engine, Measure, Measured

WINDOW_TOKENS = 512
WINDOWS = 8
TEXT_BYTES = 30_000
"""What the tool reads of a text, and little more."""
_TRIES = 20


def printed(llama_bin: Path, model: Path, text: Path) -> tuple[str, str]:
    """The running values and the last line that the tool prints.

    It writes from a thread of its own and may end, with exit code 0, before that has written all; then it is run again.
    """
    for _ in range(_TRIES):
        running, last = _printed_once(llama_bin, model, text)
        if running and last:
            return running[0], last[0]
    raise AssertionError((running, last))


def _printed_once(llama_bin: Path, model: Path, text: Path) -> tuple[list[str], list[str]]:
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
    running = rf"(?:\[\d+\][\d.]+,){{{WINDOWS}}}"
    return re.findall(running, done.stdout), re.findall(r"PPL = .* \+/- [\d.]+(?=\n)", done.stderr)


def of_engine(engine: Engine, text: Path) -> tuple[str, str]:
    """The same two lines, out of an engine that has the model loaded."""
    (tokens,) = engine.tokenize([text.read_text(encoding="utf-8")], add_special=True, parse_special=False)
    for number in range(WINDOWS):
        window = tokens[number * WINDOW_TOKENS : (number + 1) * WINDOW_TOKENS]
        engine.submit(Measure(id=f"{number}", tokens=window, score_from=WINDOW_TOKENS // 2 + 1))
    nats: list[tuple[float, ...]] = []
    for _ in range(WINDOWS):
        done = engine.next_done()
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
    return (
        "".join(f"[{number}]{value:.4f}," for number, value in enumerate(running, start=1)),
        f"PPL = {running[-1]:.4f} +/- {running[-1] * spread:.5f}",
    )
