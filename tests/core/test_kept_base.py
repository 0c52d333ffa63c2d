"""Whose rows a kept file holds, and the journal that says so."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from qlock.core.kept_base import (
    Identity,
    Log,
    PartLine,
    WholeLine,
    check_stored_tokens,
    head_of,
    identity_of,
    layout_of,
    name_of,
    read_log,
    shapes_of,
)
from qlock.core.kept_logits import Layout, layout_in
from qlock.core.kept_top import TopLayout, sizes_in
from qlock.core.lock import Lock
from qlock.core.plan import prompts_of
from qlock.core.record import line_bytes
from qlock.core.traces import write_traces
from qlock.errors import InputError
from tests.core.test_traces import a_header, a_trace
from tests.fakes.documents import a_digest, a_kld_lock, a_kld_suite, a_setting


def identity(lock: Lock | None = None) -> Identity:
    lock = lock or a_kld_lock()
    suite = next(suite for suite in lock.suite if suite.name == "distance")
    return identity_of(lock, suite, prompts_of(lock.point[1], "distance"))


def with_first(lock: Lock, table: str, **changes: object) -> Lock:
    entries = getattr(lock, table)
    return replace(lock, **{table: (replace(entries[0], **changes), *entries[1:])})


def test_an_identity_is_that_of_the_reference_and_of_the_text() -> None:
    lock = a_kld_lock()
    found = identity()
    assert (found.window_tokens, found.parts, found.vocab_tokens) == (512, 40, 49_152)
    assert found.tokenizer == lock.model[0].tokenizer_digest
    assert found.text == prompts_of(lock.point[0], "distance").tokens_digest
    assert found.setting == replace(lock.setting[0], name="kept")
    assert found.plain_text_nats == lock.point[0].plain_text_nats
    assert found.kept_tokens is UNSET
    layout = layout_of(found, shapes_of(found, {}))
    assert layout == Layout(window_tokens=512, vocab_tokens=49_152, parts=40)
    windows = [(range(512), layout.score_from)] * 40
    head = head_of(found, windows)
    assert (layout_in(head), len(head)) == (layout, layout.offset(0))


def stored(**params: object) -> Lock:
    return with_first(a_kld_lock(), "suite", params={"stored": True, **params})


def test_of_the_likeliest_tokens_alone_it_says_how_many() -> None:
    found = identity(stored(text="file:x", window_tokens=512, stored_tokens=1024))
    assert (found.window_tokens, found.kept_tokens) == (512, 1024)
    layout = layout_of(found, shapes_of(found, {}))
    assert isinstance(layout, TopLayout)
    assert (layout.kept_tokens, layout.shapes) == (1024, ((512, 257),) * 40)
    head = head_of(found, [(range(512), 257)] * 40)
    assert (sizes_in(head).kept_tokens, len(head)) == (1024, layout.offset(0))


def test_traces_have_lengths_of_their_own() -> None:
    lock = stored(traces="file:x", stored_tokens=1024)
    prompts = prompts_of(lock.point[1], "distance")
    found = identity_of(lock, lock.suite[0], replace(prompts, items=2))
    assert (found.window_tokens, found.parts) == (UNSET, 2)
    # The contents, since the token ids alone do not say where an answer begins.
    assert found.text == prompts.items_digest
    lines = [
        a_trace("one", prompt=(5, 6, 7), answer=(8,)),
        a_trace("two", prompt=(5,), answer=(6, 7)),
        a_trace("beyond the limit"),
    ]
    data = {"traces": write_traces(a_header(3), lines)}
    shapes = shapes_of(found, data)
    assert shapes == ((4, 3), (3, 1))
    layout = layout_of(found, shapes)
    assert isinstance(layout, TopLayout)
    assert layout.total_bytes == layout.offset(0) + 3 * layout.row_bytes


def test_more_tokens_than_there_are_cannot_be_stored() -> None:
    enough, too_many = (
        stored(text="file:x", window_tokens=512, stored_tokens=tokens) for tokens in (49_150, 49_151)
    )
    known = {enough.suite[0].reference: 49_152}
    check_stored_tokens(enough.suite, known)
    assert identity(enough).kept_tokens == 49_150
    said = "suite.distance: got `49151` as `stored_tokens`, expected at most `49150`"
    with pytest.raises(InputError) as caught:
        identity(too_many)
    assert str(caught.value) == said
    with pytest.raises(InputError) as caught:
        check_stored_tokens(too_many.suite, known)
    assert str(caught.value) == said
    # Of another point's vocabulary nothing follows.
    check_stored_tokens(too_many.suite, {"another": 3})


OTHERS = {
    "another model": with_first(a_kld_lock(), "model", tensors_digest=a_digest("x")),
    "another tokenizer": with_first(a_kld_lock(), "model", tokenizer_digest=a_digest("x")),
    "another KV type": with_first(a_kld_lock(), "setting", cache_type_k="q8_0"),
    "another engine": with_first(a_kld_lock(), "engine", system_info="x"),
    "another machine": with_first(a_kld_lock(), "device", cpu_model="x"),
    "another behaviour": with_first(a_kld_lock(), "point", plain_text_nats=9.0),
    "fewer tokens of a row": with_first(
        a_kld_lock(), "suite", params={"text": "file:x", "window_tokens": 512, "stored_tokens": 9}
    ),
    "another window": with_first(
        a_kld_lock(), "suite", params={"text": "file:x", "window_tokens": 256, "stored": True}
    ),
}


def test_the_name_is_of_the_identity_alone() -> None:
    name = name_of(identity())
    assert len(name) == 16
    assert int(name, 16) >= 0
    names = {name, *(name_of(identity(lock)) for lock in OTHERS.values())}
    assert len(names) == len(OTHERS) + 1


def test_names_that_people_gave_do_not_matter() -> None:
    lock = a_kld_lock()
    setting = replace(lock.setting[0], name="other", slots_requested=64)
    renamed = replace(
        lock,
        setting=(setting,),
        engine=(replace(lock.engine[0], name="other", label="b7000"),),
        model=(replace(lock.model[0], name="BF16"), lock.model[1]),
        point=(
            replace(lock.point[0], name="BF16@other", model="BF16", setting="other", engine="other"),
            replace(lock.point[1], setting="other", engine="other"),
        ),
        suite=(a_kld_suite(reference="BF16@other"), *lock.suite[1:]),
    )
    assert name_of(identity(renamed)) == name_of(identity())


def test_a_reference_that_is_not_proved_has_none() -> None:
    with pytest.raises(InputError) as caught:
        identity(with_first(a_kld_lock(), "point", plain_text_nats=UNSET))
    assert str(caught.value) == "point.F16@f16kv: the point is not proved yet"


PART = PartLine(part=3, blake3=a_digest("part"))
WHOLE = WholeLine(blake3=a_digest("whole"), size_bytes=9)


def log(*lines: Identity | PartLine | WholeLine) -> Log | None:
    return read_log([line_bytes(line)[:-1] for line in lines], name="x.jsonl")


def test_a_journal_is_read_as_far_as_it_goes() -> None:
    assert log() is None
    assert log(identity()) == Log(identity=identity(), parts={}, whole=None)
    again = replace(PART, blake3=a_digest("again"))
    found = log(identity(), PART, again, WHOLE)
    assert found == Log(identity=identity(), parts={3: a_digest("again")}, whole=WHOLE)
    # What is written after it was whole makes it another file.
    assert log(identity(), PART, WHOLE, again) == Log(
        identity=identity(), parts={3: a_digest("again")}, whole=None
    )


@pytest.mark.parametrize(
    "lines, message",
    [
        ([PART], "x.jsonl: line 1: the key `kept_version` is missing"),
        (
            [identity(), identity()],
            "x.jsonl: line 2: the line does not belong there",
        ),
        (
            [identity(), replace(PART, part=40)],
            "x.jsonl: line 2: the line does not belong there",
        ),
        (
            [replace(identity(), kept_version=2)],
            "x.jsonl: line 1: got kept_version `2`, this qlock reads up to `1`",
        ),
    ],
)
def test_a_journal_that_is_none_is_refused(lines: list[Identity | PartLine], message: str) -> None:
    with pytest.raises(InputError) as caught:
        log(*lines)
    assert str(caught.value) == message


@given(st.lists(st.binary(max_size=30), max_size=3))
def test_any_lines_are_a_journal_or_an_error(rows: list[bytes]) -> None:
    try:
        found = read_log(rows, name="x")
    except InputError:
        return
    assert found is None or found.identity.parts > 0


def test_a_setting_of_another_width_is_another_identity() -> None:
    assert name_of(replace(identity(), setting=a_setting(name="kept", slots=1))) != name_of(identity())
    assert msgspec.json.decode(line_bytes(identity()), type=Identity) == identity()
