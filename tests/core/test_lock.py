"""The lock: its text is canonical, any edit is seen, and every pin is there or listed as missing."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.digest import blake3_of
from qlock.core.effects import leaves
from qlock.core.lock import (
    Lock,
    MissingPin,
    lock_digest,
    named,
    read_lock,
    renew_path,
    unset_pins,
    write_lock,
)
from qlock.core.rules import NoMoreErrors
from qlock.core.spec import AnchorSpec, CompareSpec
from qlock.errors import ExitCode, InputError
from tests.broken.make import sealed, small_lock
from tests.fakes.changes import changed
from tests.fakes.documents import (
    SPEC_PATH,
    a_digest,
    a_lock,
    a_model,
    a_point,
    a_prompts,
    a_suite,
    lock_bytes,
)
from tests.strategies import strategy

WHOLE = lock_bytes(a_lock())
SMALL = lock_bytes(small_lock())


ANEW = "another qlock wrote it: make it anew with `qlock resolve --upgrade all specs/ladder.toml`, which may move every pin"
"""What to do about a lock that nobody edited and that is none of ours."""


def refusal(data: bytes) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read_lock(data, name="x.toml")
    assert caught.value.exit_code is ExitCode.INPUT
    return str(caught.value), caught.value.hint


def without_digest(lock: Lock) -> Lock:
    return msgspec.structs.replace(lock, body_digest="")


# ---------------------------------------------------------------- the text


def test_a_lock_is_read_back() -> None:
    assert without_digest(read_lock(WHOLE, name="x")) == a_lock()


def test_the_first_lines() -> None:
    lines = WHOLE.decode().split("\n")
    assert lines[:2] == [
        "# Written by qlock. Do not edit; renew with: qlock resolve specs/ladder.toml",
        "lock_version = 1",
    ]
    assert [line.partition(" ")[0] for line in lines[2:6]] == [
        "spec_digest",
        "body_digest",
        "frozen_date",
        "name",
    ]
    assert WHOLE.endswith(b"\n")
    assert b"\r" not in WHOLE


def test_the_body_digest_is_of_the_text_without_it() -> None:
    blank = re.sub(rb'body_digest = ".*"', b'body_digest = ""', WHOLE, count=1)
    assert read_lock(WHOLE, name="x").body_digest == blake3_of(blank)
    assert lock_digest(WHOLE) == blake3_of(WHOLE)


def test_a_digest_that_was_there_does_not_matter() -> None:
    stale = msgspec.structs.replace(a_lock(), body_digest=a_digest("stale"))
    assert lock_bytes(stale) == WHOLE


def test_the_order_of_a_dict_does_not_show() -> None:
    def lock(turn: int) -> bytes:
        keys = [("items", "file:x"), ("weights", {"b": 1, "a": [{"d": 1, "c": 2}]})][::turn]
        model = a_model(sampling=dict([("temp", 0.5), ("top_k", 1)][::turn]))
        return lock_bytes(
            a_lock(
                model=(a_model("F16"), model),
                suite=(a_suite("wikitext"), a_suite(params=dict(keys))),
            )
        )

    assert lock(1) == lock(-1)


ODD_PATHS = [
    "",
    " ",
    "specs/a b.toml ",
    "../é/规格.toml",
    'a\nbody_digest = ""',
    "a\r\nb",
    "a\x1b[2J\x00\x7f\u2028\u202e",
    'qlock resolve qlock resolve body_digest = ""',
    "a\\nb",
    "\udcff.toml",
    "# ",
]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_the_comment_bears_any_path(path: str) -> None:
    data = lock_bytes(spec_path=path)
    assert without_digest(read_lock(data, name="x")) == a_lock()
    assert data.count(b"\n") == WHOLE.count(b"\n")
    assert b"\x1b" not in data


def test_zero_has_no_sign() -> None:
    lock = a_lock(point=(a_point("F16"), a_point(plain_text_nats=-0.0)))
    assert b"plain_text_nats = 0.0\n" in lock_bytes(lock)
    assert without_digest(read_lock(lock_bytes(lock), name="x")) == lock


def test_nothing_that_is_no_number_is_written() -> None:
    with pytest.raises(ValueError) as caught:
        lock_bytes(a_lock(point=(a_point("F16"), a_point(plain_text_nats=float("nan")))))
    assert str(caught.value) == "nan cannot be recorded"


def test_a_day_that_is_none_is_refused_from_code_too() -> None:
    with pytest.raises(ValueError) as caught:
        Lock(
            **{name: getattr(a_lock(), name) for name in Lock.__struct_fields__}
            | {"frozen_date": "2026-02-30"}
        )
    assert str(caught.value) == "frozen_date: got `2026-02-30`, expected a day of the calendar"


@pytest.mark.parametrize("day", ["2026-1-1", "20260101", "2026-01-01\n", "２０２６-01-01", "2026-W01", ""])
def test_other_ways_to_write_a_day_are_refused(day: str) -> None:
    data = sealed(SMALL.replace(b'"2026-01-01"', msgspec.json.encode(day)))
    shown = day.replace("\n", "↵")
    assert refusal(data) == (f"x.toml: frozen_date: got `{shown}`, expected a day such as `2026-01-01`", ANEW)


def test_an_entry_is_found_by_its_name() -> None:
    lock = a_lock(point=(a_point("F16"), a_point()))
    assert [named(lock.point, point.name) for point in lock.point] == list(lock.point)
    with pytest.raises(KeyError, match="F17"):
        named(lock.model, "F17")


# ---------------------------------------------------------------- edits by hand


def edits(lines: list[bytes], at: int) -> list[list[bytes]]:
    """Ways to tamper with one line."""
    before, line, after = lines[:at], lines[at], lines[at + 1 :]
    swapped = [after[0], line, *after[1:]] if after else [line]
    return [
        [*before, *after],
        [*before, line, line, *after],
        [*before, b"# " + line, *after],
        [*before, line + b" ", *after],
        [*before, line + b" # yes", *after],
        [*before, b"", line, *after],
        [*before, line.swapcase(), *after],
        [*before, re.sub(rb"[0-9]", lambda digit: b"%d" % ((int(digit[0]) + 1) % 10), line, count=1), *after],
        [*before, *swapped],
    ]


@pytest.mark.parametrize("at", range(SMALL.count(b"\n") + 1))
def test_every_line_that_is_edited_is_seen(at: int) -> None:
    tried = 0
    for lines in edits(SMALL.split(b"\n"), at):
        data = b"\n".join(lines)
        if data != SMALL:
            assert refusal(data)[0].startswith("x.toml")
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("end", [b"", b"\n\n", b"\n ", b"\n# more\n", b"\n[[missing]]\n"])
def test_the_end_of_the_file_is_part_of_it(end: bytes) -> None:
    refusal(SMALL[:-1] + end)


@given(st.integers(0, len(SMALL) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_every_byte_that_is_edited_is_seen(at: int, new: bytes, length: int) -> None:
    data = SMALL[:at] + new + SMALL[at + length :]
    if data == SMALL:
        assert without_digest(read_lock(data, name="x")) == small_lock()
    else:
        refusal(data)


@pytest.mark.parametrize(
    "old, new",
    [
        ("temperature = 0.5", "temperature = 0.50"),
        ("temperature = 0.5", "'temperature' = 0.5"),
        ("temperature = 0.5", "temperature = 0.5 # warm"),
        ("slots_requested = 8\n", "slots_requested = +8\n"),
        ("[[model]]\n", "\n[[model]]\n"),
        ("# Written", "# written"),
        ("# Written by qlock. Do not edit; renew with: qlock resolve specs/ladder.toml\n", ""),
    ],
)
def test_another_text_of_the_same_facts_is_refused_even_with_a_digest_that_fits(old: str, new: str) -> None:
    assert SMALL.count(old.encode()) == 1
    message, hint = refusal(sealed(SMALL.replace(old.encode(), new.encode())))
    assert message == "x.toml: the lock is not in canonical form"
    anew = "another qlock wrote it: make it anew with `qlock resolve --upgrade all"
    assert hint in (
        f"{anew} specs/ladder.toml`, which may move every pin",
        f"{anew} SPEC`, which may move every pin",
    )


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("slots_requested = 8\n", "", "setting[0]: the key `slots_requested` is missing"),
        ("slots_requested = 8\n", "slots_asked = 8\n", "setting[0]: unknown key `slots_asked`"),
        ("top_k = 0\n", "", "suite[0].sampling: the key `top_k` is missing"),
        ("frozen_date = ", 'novel = "x"\nfrozen_date = ', "unknown key `novel`"),
    ],
)
def test_a_lock_of_another_qlock_names_the_key_and_what_to_do(old: str, new: str, message: str) -> None:
    assert SMALL.count(old.encode()) == 1
    assert refusal(sealed(SMALL.replace(old.encode(), new.encode()))) == (f"x.toml: {message}", ANEW)
    assert refusal(SMALL.replace(old.encode(), new.encode())) == (
        f"x.toml: {message}",
        "restore it from git; `qlock resolve --upgrade all specs/ladder.toml` makes it anew, and may move every pin",
    )


def test_a_hint_never_repeats_what_could_harm_a_terminal() -> None:
    data = SMALL.replace(b"specs/ladder.toml", b"\xe2\x80\xae" + b"x" * 10_000, 1)
    assert refusal(data)[1].startswith("restore it from git; `qlock resolve --upgrade all '\\u202exxx")
    assert len(refusal(data)[1]) < 300


def test_a_command_with_an_odd_path_can_be_typed_as_it_stands() -> None:
    data = SMALL.replace(b"specs/ladder.toml", b"specs/my ladder.toml", 1)
    assert refusal(data)[1].endswith(
        "; `qlock resolve --upgrade all 'specs/my ladder.toml'` makes it anew, and may move every pin"
    )


def test_a_spec_is_no_lock() -> None:
    assert refusal(b'spec_version = 1\nname = "x"\n') == (
        "x.toml: this is a spec, expected a lock",
        "give the lock that `qlock resolve` makes of it",
    )


# ---------------------------------------------------------------- pins and references


def test_pins_that_are_not_there() -> None:
    lock = a_lock(
        model=(a_model("F16", tensors_digest=UNSET), a_model()),
        point=(a_point("F16", canary=UNSET, read_back=UNSET), a_point(probe=UNSET)),
        compare=UNSET,
    )
    assert unset_pins(lock) == (
        "engine.embedded.file.libgomp.so.1.code_digest",
        "engine.embedded.file.libc.so.6.code_digest",
        "model.F16.tensors_digest",
        "point.F16@f16kv.read_back",
        "point.F16@f16kv.canary",
        "point.Q4_K_M@f16kv.probe",
    )


@pytest.mark.parametrize("at", range(2))
def test_every_pin_is_there_or_missing(at: int) -> None:
    missing = a_lock().missing
    pin = missing[at].pin
    fewer = tuple(entry for entry in missing if entry.pin != pin)
    assert refusal(lock_bytes(a_lock(missing=fewer))) == (
        f"x.toml: the pin `{pin}` is neither there nor listed as missing",
        ANEW,
    )


@pytest.mark.parametrize(
    "pin", ["model.F16.tensors_digest", "model.F16.name", "nowhere", "anchor.wikitext.setting", "compare"]
)
def test_a_pin_that_is_there_is_not_listed(pin: str) -> None:
    extra = MissingPin(pin=pin, why="so", until="fetch")
    assert refusal(lock_bytes(a_lock(missing=(*a_lock().missing, extra)))) == (
        f"x.toml: the pin `{pin}` is listed as missing but is there",
        ANEW,
    )


ANCHOR = AnchorSpec(model="F16", suite="wikitext", published=1.0, source="", tolerance=0.5)
GATE = NoMoreErrors(suite="orders")


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"point": (a_point("F16"), a_point(engine="e"))},
            "point.Q4_K_M@f16kv.engine: got `e`, expected the name of a [[engine]]",
        ),
        (
            {"point": (a_point("F16"), a_point(model="m"))},
            "point.m@f16kv.model: got `m`, expected the name of a [[model]]",
        ),
        (
            {"point": (a_point("F16"), a_point(setting="s"))},
            "point.Q4_K_M@f16kv.setting: got `s`, expected the name of a [[setting]]",
        ),
        (
            {"point": (a_point("F16"), a_point(prompts=(a_prompts("s"),)))},
            "point.Q4_K_M@f16kv.prompts: got `s`, expected the name of a [[suite]]",
        ),
        (
            {"suite": (a_suite("wikitext"), a_suite(points=("a@b",)))},
            "suite.orders.points: got `a@b`, expected the name of a [[point]]",
        ),
        (
            {"suite": (a_suite("wikitext"), a_suite(reference="a@b"))},
            "suite.orders.reference: got `a@b`, expected the name of a [[point]]",
        ),
        (
            {"anchor": (msgspec.structs.replace(ANCHOR, model="m"),)},
            "anchor.0.model: got `m`, expected the name of a [[model]]",
        ),
        (
            {"anchor": (msgspec.structs.replace(ANCHOR, suite="s"),)},
            "anchor.0.suite: got `s`, expected the name of a [[suite]]",
        ),
        (
            {"gate": (GATE, msgspec.structs.replace(GATE, suite="s"))},
            "gate.1.suite: got `s`, expected the name of a [[suite]]",
        ),
        (
            {"compare": CompareSpec(reference="a@b")},
            "compare.reference: got `a@b`, expected the name of a [[point]]",
        ),
    ],
)
def test_names_that_stand_nowhere(changes: dict[str, Any], message: str) -> None:
    assert refusal(lock_bytes(a_lock(**changes))) == (f"x.toml: {message}", ANEW)


@pytest.mark.parametrize("table", ["engine", "device", "model", "setting", "suite", "point"])
def test_two_entries_of_one_name(table: str) -> None:
    entries = getattr(a_lock(), table)
    lock = a_lock(**{table: (*entries, entries[0])})
    missing = tuple(MissingPin(pin=pin, why="", until="never") for pin in unset_pins(lock))
    assert refusal(lock_bytes(msgspec.structs.replace(lock, missing=missing))) == (
        f"x.toml: got two [[{table}]] of the name `{entries[0].name}`, expected one",
        ANEW,
    )


# ---------------------------------------------------------------- laws


TABLES = ("engine", "device", "model", "setting", "suite", "point", "anchor", "gate", "missing")
LEAVES = [
    pytest.param(table, index, leaf.path, id=f"{table}.{index}.{leaf.path}")
    for table in TABLES
    for index, entry in enumerate(getattr(a_lock(), table))
    for leaf in leaves(entry)
]


@pytest.mark.parametrize("table, index, path", LEAVES)
def test_every_leaf_shows_in_the_text(table: str, index: int, path: str) -> None:
    entries = list(getattr(a_lock(), table))
    entries[index] = changed(entries[index], path)
    assert lock_bytes(a_lock(**{table: tuple(entries)})) != WHOLE


@settings(max_examples=30)
@given(strategy(Lock), st.text(max_size=20))
@example(a_lock(), SPEC_PATH)
def test_what_is_written_is_read_and_written_again(lock: Lock, path: str) -> None:
    data = write_lock(lock, spec_path=path)
    again = read_lock(data, name="x")
    assert without_digest(again) == lock
    assert write_lock(again, spec_path=path) == data


@settings(max_examples=30)
@given(
    st.binary(max_size=50)
    | st.tuples(st.integers(0, len(SMALL)), st.integers(0, len(SMALL))).map(
        lambda cut: SMALL[min(cut) : max(cut)]
    )
)
def test_any_bytes_are_a_lock_or_an_error(data: bytes) -> None:
    if data != SMALL:
        refusal(data)


def test_the_first_line_says_how_to_renew_a_lock() -> None:
    text = lock_bytes(a_lock(), spec_path="specs/x.toml").decode()
    assert renew_path(text) == "specs/x.toml"
    assert renew_path("<<<<<<< HEAD\n" + text) == "SPEC"
    odd = lock_bytes(a_lock(), spec_path="specs/qlock resolve x.toml").decode()
    assert renew_path(odd) == "specs/qlock resolve x.toml"
