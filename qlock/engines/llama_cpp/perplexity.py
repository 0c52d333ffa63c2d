"""The cost of a window's last half through llama-perplexity and the file of log-probabilities that it writes.

The program takes a text, not token ids, and it ends with exit code 0 also where it failed. So the text is one that the
server turns into exactly these tokens; the file must name them, the window and the vocabulary, hold as much as it says,
and no value in it may be anything but a log-probability; and the program must have printed its closing line. That line is
printed by a thread that the program's end can outrun, so where it alone is missing the program is asked again. Values
are kept in 16 bits there: some 1e-4 nats beside those of the other ways. Running means are not differenced.

Does not live here: when this way is taken (``scoring``).
"""

from __future__ import annotations

import math
import mmap
import re
import time
from pathlib import Path

import msgspec

from qlock.core.base import Base, Count
from qlock.core.escape import for_message
from qlock.core.facts import Setting
from qlock.core.kept_logits import HEAD_BYTES, MAGIC, Layout, decoded, layout_in, tokens_in
from qlock.engines.interface import Broken, Measure, Measured
from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.options import arguments, for_perplexity, options_of
from qlock.engines.llama_cpp.questions import text_of, tokens_of
from qlock.engines.llama_cpp.server import Point
from qlock.engines.llama_cpp.tools import Build, printed
from qlock.errors import EngineError, InputError
from qlock.world.scratch import filling

_SMALLEST_WINDOW = 8
_SHORT_S = 60.0
"""For questions that need no computing."""
_FINAL = re.compile(r"Final estimate: PPL = ([0-9.]+) \+/-")
_PADDINGS = ("\n\n", " ", "\n", "")
"""Between a window's text and its copies behind it, since the program wants two windows."""
_TRIES = 5
"""How often the program is asked where its closing line is lost."""
_FINAL_DIGITS = 2e-3
"""How far the printed figure and the one out of the file may lie apart, as a share."""


class Expected(Base, frozen=True, kw_only=True):
    """What a file of log-probabilities must be of."""

    tokens: tuple[int, ...]
    vocab_tokens: Count


def is_window(work: Measure) -> bool:
    """Whether this is what llama-perplexity scores: the last half of a window."""
    return len(work.tokens) >= _SMALLEST_WINDOW and work.score_from == len(work.tokens) // 2 + 1


def measured(
    work: Measure, point: Point, *, build: Build, home: Home, progress_s: float
) -> Measured | Broken:
    """Run the program on one window.

    Raises:
        EngineError: It did not start, hung, or died.
    """
    began_s = time.monotonic()
    text = _text_of(work.tokens, point)
    if text is None:
        return Broken(
            id=work.id, why="no text becomes exactly these tokens, and llama-perplexity takes texts only"
        )
    folder = home.server_folder()
    source, target = folder / "text", folder / "logits"
    with filling():
        source.write_bytes(text.encode())
    program = build.program("llama-perplexity")
    options = options_of(printed(program, "--help", home=home, deadline_s=progress_s))
    given = for_perplexity(
        _window_setting(point.load.setting, len(work.tokens)),
        model=point.load.weights[0],
        text=str(source),
        logits=str(target),
        devices=point.devices,
    )
    said = ""
    for _ in range(_TRIES):
        # It writes rows of the whole vocabulary, so its files are as long as the text makes them.
        said = printed(program, *arguments(given, options), home=home, deadline_s=progress_s, file_bytes=None)
        try:
            expected = Expected(tokens=work.tokens, vocab_tokens=point.read_back.vocab_tokens)
            nats = _nats_of_file(target, expected)
            if is_final(said, nats):
                return Measured(id=work.id, nats=nats, elapsed_s=time.monotonic() - began_s)
        except EngineError as error:
            return Broken(id=work.id, why=error.message)
        finally:
            target.unlink(missing_ok=True)
    last = next((line for line in reversed(said.split("\n")) if line.strip()), "")
    return Broken(
        id=work.id,
        why=f"llama-perplexity ended `{_TRIES}` times without its closing line `Final estimate: PPL = …`, the last time"
        f" with `{for_message(last)}`",
    )


def _nats_of_file(path: Path, expected: Expected) -> tuple[float, ...]:
    """As ``nats_in``; the file is mapped, since a long window over a large vocabulary takes gigabytes."""
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                return nats_in(b"", expected)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return nats_in(data, expected)
    except OSError as error:
        raise EngineError(f"llama-perplexity wrote no logits: {error.strerror}") from error


def nats_in(data: bytes | mmap.mmap, expected: Expected) -> tuple[float, ...]:
    """Costs of the tokens of the last half of the one window in a file of kept rows (``core.kept_logits``).

    Raises:
        EngineError: It is the file of something else, or is not whole.
    """
    wanted = Layout(window_tokens=len(expected.tokens), vocab_tokens=expected.vocab_tokens, parts=1)
    start = wanted.offset(0)
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        raise EngineError(f"llama-perplexity wrote no logits: got `{len(data)}` bytes")
    _refuse_other(data[:start], wanted, expected.tokens)
    if len(data) != wanted.total_bytes:
        raise EngineError(
            f"llama-perplexity wrote logits that are not whole: got `{len(data)}` bytes,"
            f" expected `{wanted.total_bytes}`"
        )
    nats = []
    for row, token in enumerate(expected.tokens[wanted.score_from :]):
        at = wanted.offset(0, row)
        kept = decoded(data[at : at + wanted.row_bytes], wanted.vocab_tokens)
        cost = -(float(kept.step[0]) * int(kept.steps[0, token]) + float(kept.lowest[0]))
        if not math.isfinite(cost) or cost < -1e-3:
            raise EngineError(
                f"llama-perplexity gave a cost of `{cost}` nats, expected a number of at least 0"
            )
        nats.append(max(0.0, cost))
    return tuple(nats)


def _refuse_other(head: bytes, wanted: Layout, tokens: tuple[int, ...]) -> None:
    try:
        layout = layout_in(head)
    except InputError as error:
        raise EngineError(f"llama-perplexity wrote other logits: {error.message}") from error
    for fact, got, expected in (
        ("window", layout.window_tokens, wanted.window_tokens),
        ("vocabulary", layout.vocab_tokens, wanted.vocab_tokens),
        ("windows", layout.parts, wanted.parts),
    ):
        if got != expected:
            raise EngineError(
                f"llama-perplexity wrote other logits: got `{fact} = {got}`, expected `{expected}`"
            )
    if tuple(tokens_in(layout, head[HEAD_BYTES:])[0].tolist()) != tokens:
        raise EngineError(
            "llama-perplexity wrote other logits: the text became other tokens than those asked for"
        )


def is_final(said: str, nats: tuple[float, ...]) -> bool:
    """Whether the closing line of the program is there; it is held against the costs.

    Raises:
        EngineError: It says something else, or is there twice.
    """
    found = _FINAL.findall(said)
    if not found:
        return False
    if len(found) > 1:
        raise EngineError(f"llama-perplexity printed `{len(found)}` closing lines, expected one")
    mine = math.exp(min(700.0, math.fsum(nats) / len(nats)))
    if not abs(float(found[0]) - mine) <= _FINAL_DIGITS * mine + 1e-4:
        raise EngineError(
            f"llama-perplexity printed a perplexity of `{found[0]}`, and its logits give `{mine:.4f}`"
        )
    return True


def _window_setting(setting: Setting, size: int) -> Setting:
    """The setting with a window for a context, decoded alone."""
    batch = min(setting.batch_tokens, size)
    return msgspec.structs.replace(
        setting,
        context_tokens=size,
        batch_tokens=batch,
        ubatch_tokens=min(setting.ubatch_tokens, batch),
        slots=1,
    )


def _text_of(tokens: tuple[int, ...], point: Point) -> str | None:
    """A text of two windows whose first tokens are these; ``None`` when there is none."""
    read_back = point.read_back
    bare = tokens[1:] if read_back.add_bos and tokens[0] == read_back.bos_token else tokens
    try:
        text = text_of(point.server, bare, deadline_s=_SHORT_S)
        for padding in _PADDINGS:
            thrice = padding.join([text, text, text])
            found = tokens_of(
                point.server, thrice, add_special=True, parse_special=False, deadline_s=_SHORT_S
            )
            if found[: len(tokens)] == tokens and len(found) >= 2 * len(tokens):
                return thrice
    except EngineError:
        return None
    return None
