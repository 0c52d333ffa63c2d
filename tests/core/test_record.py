"""Records: whole rows and nothing else, damage reported with its line, and digests without times."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qlock.core.canon import from_json
from qlock.core.effects import leaves
from qlock.core.exchange import Called, Completed, Diverged, Failed, Right, Scored
from qlock.core.record import (
    Closing,
    Grade,
    GradeHeader,
    Record,
    Row,
    Seal,
    SealedJob,
    Shared,
    Times,
    answers_digest,
    is_done,
    item_digest,
    line_bytes,
    read_record,
    run_answers_digest,
    tokens_of,
)
from qlock.errors import ExitCode, InputError
from tests.fakes.changes import changed
from tests.fakes.documents import a_digest, a_record, a_row, record_bytes
from tests.strategies import strategy

WHOLE = record_bytes()
ODD = "a\u2028b\u2029c\x85d\x1ce\x1df\x0bg\x0ch\ri\nj\ufeffk\u0000"
"""What `str.splitlines` cuts at, and more."""


def read(data: bytes) -> Record:
    return read_record(io.BytesIO(data), name="x.jsonl")


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(data)
    assert caught.value.exit_code is ExitCode.INPUT
    return str(caught.value)


def answer(text: str, *, ending: Any = "eos") -> Completed:
    return Completed(text=text, tokens=(1,), ending=ending, prompt_tokens=1)


# ---------------------------------------------------------------- reading


def test_a_record_is_read_back() -> None:
    assert read(WHOLE) == a_record()


def test_a_line_of_each_kind() -> None:
    lines = WHOLE.split(b"\n")
    assert [line.partition(b",")[0] for line in lines] == [
        b'{"kind":"header"',
        b'{"kind":"row"',
        b'{"kind":"row"',
        b'{"kind":"row"',
        b'{"kind":"closing"',
        b"",
    ]


def test_lines_end_at_line_feeds_only() -> None:
    record = a_record(rows=(a_row(ODD, replies=(answer(ODD), answer(ODD))),))
    data = record_bytes(record)
    assert data.count(b"\n") == 3
    assert "\u2028".encode() in data
    assert read(data) == record


def test_a_torn_last_line_is_dropped_and_counted() -> None:
    data = record_bytes(a_record(closing=None))
    last = data.split(b"\n")[-2]
    found = read(data[:-1])
    assert [row.item for row in found.rows] == ["order-1", "order-2"]
    assert (found.torn_bytes, found.closing) == (len(last), None)


def test_cut_at_any_byte_it_gives_exactly_its_whole_rows() -> None:
    whole = a_record()
    for at in range(len(WHOLE) + 1):
        data = WHOLE[:at]
        lines = data.count(b"\n")
        if lines == 0:
            assert refusal(data) == "x.jsonl: got no header line, expected a record"
            continue
        found = read(data)
        assert found.header == whole.header
        assert found.rows == whole.rows[: min(lines - 1, 3)]
        assert found.torn_bytes == len(data) - data.rfind(b"\n") - 1
        assert (found.closing is not None) == (at == len(WHOLE))


def test_of_several_rows_for_one_item_the_last_counts() -> None:
    lost, kept = a_row("order-1", replies=(Failed(why="timeout"),)), a_row("order-1")
    other = a_row("order-2")
    lines = [a_record(rows=(kept, other)).header, lost, other, kept]
    found = read(b"".join(map(line_bytes, lines)))
    assert found.rows == (kept, other)


@pytest.mark.parametrize("second", [a_row("order-1"), a_row("order-1", replies=(Failed(why="timeout"),))])
def test_a_second_answer_to_an_item_is_an_error(second: Row) -> None:
    lines = [a_record().header, a_row("order-1"), a_row("order-2"), second]
    assert refusal(b"".join(map(line_bytes, lines))) == "x.jsonl: line 4 is a second answer to `order-1`"


@pytest.mark.parametrize("at", range(1, 4))
def test_damage_in_the_middle_is_an_error_with_its_line(at: int) -> None:
    lines = WHOLE.split(b"\n")
    for damage in (b"", lines[at][:-1], lines[at] + b"}", b"\x00" * 10, lines[at][:20] + lines[at]):
        data = b"\n".join([*lines[:at], damage, *lines[at + 1 :]])
        assert refusal(data).startswith(f"x.jsonl: line {at + 1}")


def test_a_line_that_is_too_deep_is_refused() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"a": deep}
    row = a_row(replies=(Called(results=(), state=deep),))
    data = line_bytes(a_record().header) + line_bytes(row)
    assert (
        refusal(data) == "x.jsonl: line 2: tables or arrays are nested too deep, expected at most 64 levels"
    )


@pytest.mark.parametrize(
    "lines, message",
    [
        (
            [a_record().header, Closing(items=2, answers_digest=a_digest(""))],
            "x.jsonl: got 2 items in the closing line, expected 3 as the header says",
        ),
        (
            [a_record().header, a_row(), Closing(items=3, answers_digest=a_digest(""))],
            "x.jsonl: got 1 rows, expected 3 as the closing line says",
        ),
        ([*a_record().rows], "x.jsonl: line 1: got no header line, expected a record"),
        (
            [a_record().header, a_row(segment=-1)],
            "x.jsonl: line 2: segment: got `-1`, expected an integer >= 0",
        ),
        (
            [a_record().header, a_row(times=Times(prefill_s=0.0, decode_s=-1e-3))],
            "x.jsonl: line 2: times.decode_s: got `-0.001`, expected a number >= 0.0",
        ),
        (
            [a_record().header, a_row(replies=(msgspec.structs.replace(answer("a"), tokens=(2**31,)),))],
            "x.jsonl: line 2: replies[0].tokens[0]: got `2147483648`, expected an integer <= 2147483647",
        ),
        (
            [msgspec.structs.replace(a_record().header, repeat=0)],
            "x.jsonl: line 1: repeat: got `0`, expected an integer >= 1",
        ),
        (
            [a_record().header, a_row(times=Times(prefill_s=1.0, decode_s=1.0)), a_record().header],
            "x.jsonl: line 3 is a second header",
        ),
    ],
)
def test_what_is_refused(lines: list[Any], message: str) -> None:
    assert refusal(b"".join(map(line_bytes, lines))) == message


@pytest.mark.parametrize("first", [b"[]", b"3", b"null", b'{"kind":"row"}', b"{}"])
def test_a_first_line_that_is_no_header(first: bytes) -> None:
    assert refusal(first + b"\n") in (
        "x.jsonl: line 1: got no header line, expected a record",
        "x.jsonl: line 1: got an array, expected a table",
        "x.jsonl: line 1: got `3`, expected a table",
        "x.jsonl: line 1: got null, expected a table",
    )


@pytest.mark.parametrize(
    "replies, done",
    [
        ((), True),
        ((answer("a"),), True),
        ((answer("a", ending="budget"), Scored(nats=(1.0,)), Called(results=(), state={})), True),
        ((answer("a"), answer("b", ending="error")), False),
        ((Failed(why="lost"), answer("b")), False),
    ],
)
def test_rows_that_need_no_second_try(replies: tuple[Any, ...], done: bool) -> None:  # noqa: FBT001 - a table
    assert is_done(a_row(replies=replies)) == done


def test_tokens_are_those_that_were_written_or_scored() -> None:
    replies = (answer("a"), Scored(nats=(1.0, 2.0)), Called(results=("x",), state={}), Failed(why="lost"))
    assert tokens_of(a_row(replies=replies)) == 3
    two = (0.5, 0.25)
    diverged = Diverged(
        nats=two, reference_nats=two, kld_nats=two, reverse_kld_nats=two, same_top=(True, True), pieces=()
    )
    assert tokens_of(a_row(replies=(diverged,))) == 2
    assert tokens_of(a_row(replies=())) == 0


# ---------------------------------------------------------------- digests


def test_digests_never_change_between_releases() -> None:
    assert (
        answers_digest(a_record().rows)
        == "blake3:bc5619548988e875ccae20624e281ba08f01b473501474222c7d8e90a52c4fa1"
    )
    assert (
        item_digest("a", {"bank": "north"}, {"q": [1, 2.5]})
        == "blake3:cdd67827edd36bc7e5cff2e00b05f9cdf8cd27537850b2dabdb4c5ea80d22fae"
    )


def test_order_times_and_segments_do_not_change_the_answers() -> None:
    rows = a_record().rows
    slower = tuple(
        msgspec.structs.replace(row, times=Times(prefill_s=9.0, decode_s=9.0), segment=3, slices={})
        for row in reversed(rows)
    )
    assert answers_digest(slower) == answers_digest(rows)


ANSWER_LEAVES = [leaf.path for leaf in leaves(answer("a"))]


@pytest.mark.parametrize("path", ANSWER_LEAVES)
def test_every_leaf_of_a_reply_changes_the_answers(path: str) -> None:
    reply = answer("a")
    rows = (a_row(replies=(reply,)), a_row(replies=(changed(reply, path),)))
    assert answers_digest(rows[:1]) != answers_digest(rows[1:])


def test_items_and_their_order_of_replies_change_the_answers() -> None:
    one, two = answer("1"), answer("2")
    digests = {
        answers_digest((row,))
        for row in (
            a_row(replies=(one, two)),
            a_row(replies=(two, one)),
            a_row(replies=(one,)),
            a_row("order-2", replies=(one, two)),
            a_row(replies=(one, two), item_digest=a_digest("another")),
        )
    }
    assert len(digests) == 5


def test_an_item_is_all_of_it() -> None:
    found = {
        item_digest("a", {}, {}),
        item_digest("b", {}, {}),
        item_digest("a", {"s": "1"}, {}),
        item_digest("a", {}, {"s": "1"}),
    }
    assert len(found) == 4
    assert item_digest("a", {"x": "1", "y": "2"}, {}) == item_digest("a", {"y": "2", "x": "1"}, {})


def sealed_job(name: str, **changes: Any) -> SealedJob:
    job = SealedJob(
        job=name,
        job_digest=a_digest(name),
        answers_digest=a_digest(f"answers of {name}"),
        items=3,
        taken_from="",
    )
    return msgspec.structs.replace(job, **changes)


def test_the_answers_of_a_run_are_those_of_its_jobs() -> None:
    a, b = sealed_job("a"), sealed_job("b")
    whole = run_answers_digest((a, b))
    assert run_answers_digest((b, a)) == whole
    assert (
        run_answers_digest((msgspec.structs.replace(a, taken_from="runs/older", job_digest=a_digest("")), b))
        == whole
    )
    assert run_answers_digest((a,)) != whole
    assert run_answers_digest((a, msgspec.structs.replace(b, answers_digest=a_digest("")))) != whole


@pytest.mark.parametrize("version", [0, 2])
def test_a_seal_of_another_version_is_refused(version: int) -> None:
    seal = Seal(
        seal_version=version,
        lock_digest=a_digest(""),
        answers_digest=a_digest(""),
        forced=(),
        job=(sealed_job("a"),),
        file=(),
    )
    sign = "<= 1" if version > 1 else ">= 1"
    with pytest.raises(InputError) as caught:
        from_json(line_bytes(seal), Seal, name="seal.json")
    assert str(caught.value) == f"seal.json: seal_version: got `{version}`, expected an integer {sign}"


def test_lines_of_grades() -> None:
    header = GradeHeader(job="a", job_digest=a_digest(""), grade_version=1, answers_digest=a_digest(""))
    grade = Grade(item="a", outcome=Right())
    assert from_json(line_bytes(header), GradeHeader, name="x") == header
    assert line_bytes(grade) == b'{"item":"a","outcome":{"kind":"right"}}\n'


def test_no_time_that_is_no_number_is_written() -> None:
    with pytest.raises(ValueError) as caught:
        line_bytes(a_row(times=Times(prefill_s=float("inf"), decode_s=0.0)))
    assert str(caught.value) == "inf cannot be recorded"


# ---------------------------------------------------------------- laws


@settings(max_examples=50)
@given(strategy(Record))
def test_what_is_written_is_read_and_written_again(record: Record) -> None:
    data = record_bytes(record)
    assert read(data) == record
    assert record_bytes(read(data)) == data
    assert data.count(b"\n") == 1 + len(record.rows) + (record.closing is not None)


@settings(max_examples=50)
@given(st.lists(strategy(Row), max_size=4), st.binary(max_size=20))
def test_whatever_order_and_tail_the_last_row_of_each_item_counts(rows: list[Row], tail: bytes) -> None:
    torn = tail.replace(b"\n", b"")
    last = {row.item: number for number, row in enumerate(rows)}
    lost = (Failed(why="timeout"),)
    rows = [
        row if last[row.item] == number else msgspec.structs.replace(row, replies=lost)
        for number, row in enumerate(rows)
    ]
    data = b"".join(map(line_bytes, [a_record().header, *rows])) + torn
    found = read(data)
    assert {row.item: row for row in found.rows} == {row.item: row for row in rows}
    assert len(found.rows) == len({row.item for row in rows})
    assert found.torn_bytes == len(torn)


@given(
    st.binary(max_size=80)
    | st.builds(
        lambda at, new, length: WHOLE[:at] + new + WHOLE[at + length :],
        st.integers(0, len(WHOLE)),
        st.binary(max_size=4) | st.sampled_from([b"[[", b"}", b'"', b"\n", b"1e999", b"9" * 5000]),
        st.integers(0, 30),
    )
)
def test_any_bytes_are_a_record_or_an_error(data: bytes) -> None:
    try:
        record = read(data)
    except InputError as error:
        if not str(error).startswith("x.jsonl"):
            raise
    else:
        assert read(record_bytes(record)) == msgspec.structs.replace(record, torn_bytes=0)


def test_a_token_that_occurs_again_is_in_memory_once() -> None:
    def answer(item: str) -> Row:
        reply = Completed(text="", tokens=(30_000, 30_001, 30_000), ending="eos", prompt_tokens=1)
        return a_row(item, replies=(reply, Failed(why="the engine died")))

    found = read(record_bytes(a_record(rows=(answer("a"), answer("b")))))
    assert found.rows == (answer("a"), answer("b"))
    tokens = [token for row in found.rows for reply in row.replies[:1] for token in reply.tokens]  # type: ignore[union-attr]  # the first is an answer
    assert len({id(token) for token in tokens}) == 2


def test_a_record_is_read_line_by_line() -> None:
    taken = []

    def lines() -> Iterator[bytes]:
        for line in io.BytesIO(WHOLE):
            taken.append(line)
            yield line

    assert read_record(lines(), name="x") == read(WHOLE)
    assert len(taken) == WHOLE.count(b"\n")


def test_equal_answers_of_another_record_are_in_memory_once() -> None:
    def answer(item: str, text: str) -> Row:
        reply = Completed(text=text, tokens=(30_000, len(text)), ending="eos", prompt_tokens=1)
        return a_row(item, slices={"bank": "north"}, replies=(reply,))

    one = read(record_bytes(a_record(rows=(answer("a", "same text"), answer("b", "other")))))
    data = record_bytes(a_record(rows=(answer("a", "same text"), answer("b", "another"))))
    other = read_record(io.BytesIO(data), name="x", shared=Shared(one.rows))
    assert other == read(data)
    (mine, _), (theirs, changed_one) = one.rows, other.rows
    assert mine.slices is theirs.slices is changed_one.slices
    match mine.replies, theirs.replies:
        case (Completed() as a,), (Completed() as b,):
            assert a.text is b.text
            assert a.tokens is b.tokens
        case _:
            pytest.fail("both are answers")


@pytest.mark.parametrize("tokens", [(), (7,), ((1 << 31) - 1, 3), (0, 1_048_576), (5, 5, 1_048_575)])
def test_whatever_the_ids_are_they_come_back(tokens: tuple[int, ...]) -> None:
    reply = Completed(text="", tokens=tokens, ending="eos", prompt_tokens=1)
    record = a_record(rows=(a_row("a", replies=(reply,)),))
    assert read(record_bytes(record)) == record
