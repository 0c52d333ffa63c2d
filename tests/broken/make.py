"""Specs, locks and records that are broken, one failure each, named by it, with the words that must refuse them.

`python -m tests.broken.make` writes them beside this file. A lock that was edited has the digest it had before; one
that is wrong in itself has a digest that fits, so that nothing else is refused first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from qlock.core.digest import blake3_of
from qlock.core.lock import Lock, MissingPin
from tests.fakes.documents import (
    a_lock,
    a_model,
    a_point,
    a_prompts,
    a_record,
    a_suite,
    lock_bytes,
    record_bytes,
)

FOLDER = Path(__file__).resolve().parent


class Broken(NamedTuple):
    """A file, and how it is refused."""

    data: bytes
    message: str
    """With `FILE` for the file's name."""
    hint: str = ""


def _replaced(data: bytes, old: str, new: str) -> bytes:
    assert data.count(old.encode()) == 1, old
    return data.replace(old.encode(), new.encode())


# ---------------------------------------------------------------- specs

SPEC = b"""\
spec_version = 1
name = "small"

[[model]]
name = "Q4_K_M"
source = "file:models/q4.gguf"

[[setting]]
name = "f16kv"
slots = 4

[[suite]]
name = "orders"
kind = "tasks"
items = "file:tasks/orders.jsonl"

[suite.sampling]
temperature = 0.5
"""


def _specs() -> dict[str, Broken]:
    def edited(old: str, new: str, message: str, hint: str = "") -> Broken:
        return Broken(_replaced(SPEC, old, new), f"FILE: {message}", hint)

    temperature, slots = "temperature = 0.5", "slots = 4"
    return {
        "byte-order-mark": Broken(
            b"\xef\xbb\xbf" + SPEC,
            "FILE: the file starts with a BOM (bytes EF BB BF)",
            "save it as UTF-8 without BOM",
        ),
        "conflict": edited(
            slots,
            "<<<<<<< HEAD\nslots = 4\n=======\nslots = 8\n>>>>>>> theirs",
            "unresolved git conflict at line 10",
            "take one side, then run `qlock resolve` again",
        ),
        "not-utf8": Broken(SPEC.replace(b"small", b"\xff"), "FILE: line 2 is not UTF-8"),
        "no-toml": edited(
            slots,
            "slots: 4",
            "not TOML: Expected '=' after a key in a key/value pair (at line 10, column 6)",
        ),
        "key-twice": edited(
            slots, "slots = 4\nslots = 8", "not TOML: Cannot overwrite a value (at line 11, column 10)"
        ),
        "dotted-key-and-table": edited(
            'items = "',
            'sampling.top_k = 1\nitems = "',
            "not TOML: Cannot declare ('suite', 'sampling') twice (at line 18, column 16)",
        ),
        "unknown-key": edited(
            temperature,
            "temprature = 0.5",
            "suite[0].sampling: unknown key `temprature`",
            "did you mean `temperature`?",
        ),
        "lookalike-letter": edited(
            temperature,
            "tеmperature = 0.5",
            "not TOML: Expected '=' after a key in a key/value pair (at line 18, column 2): got `е` (U+0435 CYRILLIC SMALL LETTER IE)",
            "write keys in ASCII letters, and text in quotes",
        ),
        "lookalike-letter-in-quotes": edited(
            temperature,
            '"tеmperature" = 0.5',
            "suite[0].sampling: unknown key `tеmperature` (U+0435)",
            "did you mean `temperature`?",
        ),
        "no-version": edited("spec_version = 1\n", "", "the key `spec_version` is missing"),
        "newer-version": edited(
            "spec_version = 1",
            "spec_version = 2",
            "got spec_version `2`, this qlock reads up to `1`",
            "upgrade qlock",
        ),
        "older-version": edited("spec_version = 1", "spec_version = 0", "got spec_version `0`, expected `1`"),
        "infinite": edited(
            temperature,
            "temperature = 1e400",
            "suite[0].sampling.temperature: got `inf`, expected a finite number",
        ),
        "not-a-number": edited(
            temperature,
            "temperature = nan",
            "suite[0].sampling.temperature: got `nan`, expected a finite number",
        ),
        "integer-of-65-bits": edited(
            slots,
            "slots = 9223372036854775808",
            "setting[0].slots: got an integer that does not fit 64 bits",
        ),
        "true-for-an-integer": edited(
            slots, "slots = true", "setting[0].slots: got `true`, expected an integer"
        ),
        "out-of-range": edited(slots, "slots = 65", "setting[0].slots: got `65`, expected an integer <= 64"),
        "date": edited(
            'name = "f16kv"',
            "name = 2026-01-01",
            "setting[0].name: got a date or time `2026-01-01`, expected text or a number",
            "put text in quotes",
        ),
        "choice": edited(
            slots, 'split_mode = "row"', "setting[0].split_mode: got `row`, expected one of: `layer`, `none`"
        ),
        "name": edited(
            '"Q4_K_M"',
            '"Q4/K"',
            "model[0].name: got `Q4/K`, expected a name of ASCII letters, digits and `._+-` that starts with a letter or digit",
        ),
        "table-for-an-array": edited("[[model]]", "[model]", "model: got a table, expected an array"),
        "missing-key": edited(
            'source = "file:models/q4.gguf"\n', "", "model[0]: the key `source` is missing"
        ),
        "quantized-v-cache": edited(
            slots,
            'cache_type_v = "q8_0"',
            "setting[0].cache_type_v: got `q8_0` without flash attention, expected `flash_attention = true` with a quantized V cache",
        ),
        "physical-batch-above-the-batch": edited(
            slots,
            "ubatch_tokens = 4096",
            "setting[0].ubatch_tokens: got `4096`, expected at most batch_tokens `2048`",
        ),
        "no-day": edited(
            'name = "small"\n',
            'name = "small"\nfrozen_date = "2026-02-30"\n',
            "frozen_date: got `2026-02-30`, expected a day of the calendar",
        ),
        "name-twice": edited(
            "[[setting]]",
            '[[model]]\nname = "Q4_K_M"\nsource = "file:b.gguf"\n\n[[setting]]',
            "model: two entries are called `Q4_K_M`: model[0] and model[1]",
        ),
        "unknown-model": edited(
            'kind = "tasks"',
            'kind = "tasks"\nmodels = ["F16"]',
            "suite[0].models: got `F16`, expected a model of this spec: Q4_K_M",
        ),
        "no-point": edited(
            'kind = "tasks"',
            'kind = "tasks"\nmodels = []',
            "suite[0]: no point has these models and settings",
        ),
        "point-twice": Broken(
            SPEC + b'[[point]]\nmodel = "Q4_K_M"\nsetting = "f16kv"\n' * 2,
            "FILE: point: the point `Q4_K_M@f16kv` is listed twice: point[0] and point[1]",
        ),
        "two-jobs-of-one-name": Broken(
            _replaced(
                SPEC, "[[setting]]", '[[model]]\nname = "2.Q4_K_M"\nsource = "file:b.gguf"\n\n[[setting]]'
            )
            + b'[[suite]]\nname = "orders.2"\nkind = "tasks"\n',
            "FILE: suite: two jobs would be called `orders.2.Q4_K_M@f16kv`: of suite[0] and suite[1]",
            "rename one of the suites or models",
        ),
        "too-deep": edited(
            "items = ",
            f"deep = {'[' * 80}{']' * 80}\nitems = ",
            "tables or arrays are nested too deep, expected at most 64 levels",
        ),
    }


# ---------------------------------------------------------------- locks

_RENEW = "`qlock resolve --upgrade all specs/ladder.toml`"
_OTHER = f"another qlock wrote it: make it anew with {_RENEW}, which may move every pin"
_EDITED = (
    "FILE: the lock was edited by hand: its body_digest does not fit",
    f"restore it from git; {_RENEW} makes it anew, and may move every pin",
)


def small_lock(**changes: Any) -> Lock:
    """A lock of one model that sits one exam."""
    few: dict[str, Any] = {
        "model": (a_model(),),
        "point": (a_point(prompts=(a_prompts("orders"),)),),
        "suite": (a_suite(points=("Q4_K_M@f16kv",)),),
        "anchor": (),
        "compare": UNSET,
    }
    return a_lock(**(few | changes))


def sealed(data: bytes) -> bytes:
    """The text of a lock with a digest that fits."""
    lines = data.split(b"\n")
    at = next(index for index, line in enumerate(lines) if line.startswith(b"body_digest = "))
    lines[at] = b'body_digest = ""'
    digest = blake3_of(b"\n".join(lines))
    lines[at] = f'body_digest = "{digest}"'.encode()
    return b"\n".join(lines)


def _locks() -> dict[str, Broken]:
    whole = lock_bytes(small_lock())
    missing = small_lock().missing
    extra = MissingPin(pin="point.Q4_K_M@f16kv.canary", why="not proved", until="prove")
    unknown = {"point": (a_point(prompts=(a_prompts("orders"),), device="gpu-l4"),)}
    return {
        "edited": Broken(_replaced(whole, "temperature = 0.5", "temperature = 0.6"), *_EDITED),
        "comment-edited": Broken(
            _replaced(whole, "specs/ladder.toml", "specs/other.toml"),
            _EDITED[0],
            "restore it from git; `qlock resolve --upgrade all specs/other.toml` makes it anew, and may move every pin",
        ),
        "comment-gone": Broken(
            whole.partition(b"\n")[2],
            _EDITED[0],
            "restore it from git; `qlock resolve --upgrade all SPEC` makes it anew, and may move every pin",
        ),
        "line-ends": Broken(
            whole.replace(b"\n", b"\r\n"),
            "FILE: got line ends CRLF, expected LF",
            "let git leave them as they are: `*.toml -text` in .gitattributes",
        ),
        "conflict": Broken(
            _replaced(
                whole,
                "temperature = 0.5",
                "<<<<<<< HEAD\ntemperature = 0.5\n=======\ntemperature = 0.6\n>>>>>>> theirs",
            ),
            f"FILE: unresolved git conflict at line {whole[: whole.index(b'temperature')].count(10) + 1}",
            "take one side, then run `qlock resolve` again",
        ),
        "newer-version": Broken(
            _replaced(whole, "lock_version = 1", 'lock_version = 2\nnew_key = "x"'),
            "FILE: got lock_version `2`, this qlock reads up to `1`",
            "upgrade qlock",
        ),
        "unknown-version": Broken(
            _replaced(whole, "lock_version = 1", 'lock_version = "1"'),
            "FILE: got lock_version `1`, expected `1`",
        ),
        "no-version": Broken(
            _replaced(whole, "lock_version = 1\n", ""), "FILE: the key `lock_version` is missing"
        ),
        "not-canonical": Broken(
            sealed(_replaced(whole, "temperature = 0.5", "temperature = 0.50")),
            "FILE: the lock is not in canonical form",
            _OTHER,
        ),
        "unknown-key": Broken(
            sealed(_replaced(whole, "temperature = 0.5", "temperature = 0.5\ntop = 1")),
            "FILE: suite[0].sampling: unknown key `top`",
            _OTHER,
        ),
        "no-day": Broken(
            sealed(_replaced(whole, "2026-01-01", "2026-02-30")),
            "FILE: frozen_date: got `2026-02-30`, expected a day of the calendar",
            _OTHER,
        ),
        "pin-neither-there-nor-missing": Broken(
            lock_bytes(small_lock(missing=missing[:1])),
            "FILE: the pin `engine.embedded.file.libc.so.6.code_digest` is neither there nor listed as missing",
            _OTHER,
        ),
        "pin-there-and-missing": Broken(
            lock_bytes(small_lock(missing=(*missing, extra))),
            "FILE: the pin `point.Q4_K_M@f16kv.canary` is listed as missing but is there",
            _OTHER,
        ),
        "unknown-device": Broken(
            lock_bytes(small_lock(**unknown)),
            "FILE: point.Q4_K_M@f16kv.device: got `gpu-l4`, expected the name of a [[device]]",
            _OTHER,
        ),
        "model-twice": Broken(
            lock_bytes(small_lock(model=(a_model(), a_model()))),
            "FILE: got two [[model]] of the name `Q4_K_M`, expected one",
            _OTHER,
        ),
    }


# ---------------------------------------------------------------- records


def _records() -> dict[str, Broken]:
    whole = record_bytes()
    header, first, second, third, closing, _ = whole.split(b"\n")

    def of(*lines: bytes) -> bytes:
        return b"".join(line + b"\n" for line in lines)

    def part(start: int, stop: int) -> bytes:
        return _replaced(header, '"items":3', f'"items":3,"part":{{"start":{start},"stop":{stop}}}')

    open_record = record_bytes(a_record(closing=None))
    four = ('"items":3', '"items":4')
    return {
        "empty": Broken(b"", "FILE: got no header line, expected a record"),
        "torn-header": Broken(header[:50], "FILE: got no header line, expected a record"),
        "no-header": Broken(of(first, second), "FILE: line 1: got no header line, expected a record"),
        "two-headers": Broken(of(header, first, header), "FILE: line 3 is a second header"),
        "newer-version": Broken(
            _replaced(of(header, first), '"record_version":1', '"record_version":2,"new_key":0'),
            "FILE: line 1: got record_version `2`, this qlock reads up to `1`",
            "upgrade qlock",
        ),
        "damaged-line": Broken(
            of(header, first[:-10], second), "FILE: line 2: not JSON: Input data was truncated"
        ),
        "empty-line": Broken(of(header, b"", first), "FILE: line 2: not JSON: Input data was truncated"),
        "unknown-kind": Broken(
            of(header, b'{"kind":"note"}'),
            "FILE: line 2: kind: got `note`, expected one of: `header`, `row`, `closing`",
        ),
        "unknown-key": Broken(
            open_record.replace(b'"segment":0}', b'"segments":0}'),
            "FILE: line 2: unknown key `segments`",
            "did you mean `segment`?",
        ),
        "after-the-closing-line": Broken(
            of(header, first, second, third, closing, first), "FILE: line 6 stands after the closing line"
        ),
        "torn-after-the-closing-line": Broken(
            whole + first[:9], "FILE: 9 bytes stand after the closing line"
        ),
        "row-lost": Broken(
            of(header, first, third, closing), "FILE: got 2 rows, expected 3 as the closing line says"
        ),
        "row-doubled": Broken(
            of(_replaced(header, *four), first, second, third, third, _replaced(closing, *four)),
            "FILE: line 5 is a second answer to `order-3`",
        ),
        "row-edited": Broken(
            _replaced(whole, '\\"order-3\\"', '\\"order-4\\"'),
            "FILE: the rows do not fit the answers_digest of the closing line",
        ),
        "fewer-items-than-announced": Broken(
            _replaced(whole, '"repeat":1,"items":3', '"repeat":1,"items":4'),
            "FILE: got 3 items in the closing line, expected 4 as the header says",
        ),
        "part-empty": Broken(
            of(part(2, 2)), "FILE: line 1: part.stop: got `2`, expected more than start `2`"
        ),
        "part-beyond-the-items": Broken(
            of(part(2, 4)), "FILE: line 1: part.stop: got `4`, expected at most items `3`"
        ),
        "part-with-too-many-rows": Broken(
            of(part(1, 3), first, second, third, closing),
            "FILE: got 3 items in the closing line, expected 2 as the header says",
        ),
    }


def broken() -> dict[str, Broken]:
    """Every broken file by its name."""
    groups = (("spec", "toml", _specs()), ("lock", "toml", _locks()), ("record", "jsonl", _records()))
    return {f"{kind}.{name}.{suffix}": one for kind, suffix, found in groups for name, one in found.items()}


def main() -> None:
    """Write every file anew."""
    for name, one in broken().items():
        (FOLDER / name).write_bytes(one.data)


if __name__ == "__main__":
    main()
