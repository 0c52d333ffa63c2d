"""Files of traces: written, read back, and refused with the line that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qlock.core.base import is_item_id
from qlock.core.traces import Header, Trace, closed, read_traces, write_traces
from qlock.errors import InputError
from tests.fakes.documents import a_digest, a_setting


def a_header(traces: int = 2, **changes: object) -> Header:
    header = Header(
        traces_version=1,
        traces=traces,
        suite="orders",
        point="F16@f16kv",
        job_digest=a_digest("job"),
        answers_digest=a_digest("answers"),
        tensors_digest=a_digest("tensors of F16"),
        tokenizer_digest=a_digest("tokenizer"),
        template_digest=a_digest("template"),
        prompts_digest=a_digest("tokens of orders"),
        setting=a_setting(),
    )
    return replace(header, **changes)


def a_trace(id_: str = "order-1", **changes: object) -> Trace:
    trace = Trace(id=id_, slices={"bank": "north"}, prompt=(1, 2, 3), answer=(4, 5), ending="eos")
    return replace(trace, **changes)


FILE = write_traces(a_header(), [a_trace(), a_trace("order-2")])


def test_a_file_is_read_as_it_was_written() -> None:
    read = read_traces(FILE)
    assert read.header == a_header()
    assert read.trace == (a_trace(), a_trace("order-2"))


LINES = FILE.split(b"\n")[:-1]
BOUND = b"".join(line + b"\n" for line in LINES[:-1])

CUT = "the last line is no digest of the others, expected a whole file"
CHANGED = "the file was changed after it was written: its last line is the digest of other ones"


SLICE = "expected a name without `=` and a value, each 1 to 200 printable characters without outer spaces"


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_traces(data)
    return str(caught.value)


def joined(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize(
    "data, message",
    [
        (FILE.replace(b'"answer":[4,5]', b'"answer":[4,6]', 1), CHANGED),
        (FILE.replace(b'"prompt":[1,2,3]', b'"prompt":[1,2]', 1), CHANGED),
        (FILE.replace(b'"north"', b'"south"', 1), CHANGED),
        (FILE.replace(b'"suite":"orders"', b'"suite":"others"'), CHANGED),
        (joined(LINES[0], LINES[2], LINES[1], LINES[3]), CHANGED),
        (joined(LINES[0], LINES[1], LINES[3]), CHANGED),
        (joined(*LINES[:3], b"", LINES[3]), CHANGED),
        (FILE.replace(b"\n", b"\r\n"), CHANGED),
        (FILE[:-1], CUT),
        (FILE[:-2], CUT),
        (joined(*LINES[:3]), CUT),
        (joined(*LINES[:2]), CUT),
        (joined(LINES[0]), CUT),
        (FILE + b"\n", CUT),
        (joined(*LINES, LINES[1]), CUT),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(data: bytes, message: str) -> None:
    assert data != FILE
    assert refusal(data) == message


def test_a_changed_file_is_to_be_written_again() -> None:
    with pytest.raises(InputError) as caught:
        read_traces(FILE.replace(b"[4,5]", b"[4,6]"))
    assert caught.value.hint == "write it again with `qlock traces`"


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_no_byte_can_be_another(at: int, change: int) -> None:
    data = FILE[:at] + bytes([FILE[at] ^ change]) + FILE[at + 1 :]
    with pytest.raises(InputError):
        read_traces(data)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "line 1: got no header, expected a file that `qlock traces` wrote"),
        (b"a plain text", "line 1: got no header, expected a file that `qlock traces` wrote"),
        (b'{"id": "x"}\n', "line 1: got no header, expected a file that `qlock traces` wrote"),
        (
            FILE.replace(b'"traces_version":1', b'"traces_version":2'),
            "line 1: got traces_version `2`, this qlock reads up to `1`",
        ),
        (closed(BOUND.replace(b"order-2", b"order-1")), "line 3 is a second trace of `order-1`"),
        (closed(joined(*LINES[:2])), "got 1 traces, expected 2 as the header says"),
        (
            closed(BOUND.replace(b'"answer":[4,5]', b'"answer":[]', 1)),
            "line 2: answer: expected an array of length >= 1",
        ),
        (
            closed(BOUND.replace(b'"prompt":[1,2,3]', b'"prompt":[1,-2,3]', 1)),
            "line 2: prompt[1]: got `-2`, expected an integer >= 0",
        ),
        (
            write_traces(a_header(), [a_trace(), a_trace("order-2", slices={"": "north"})]),
            f"line 3: got the slice `=north`, {SLICE}",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(data: bytes, message: str) -> None:
    assert refusal(data) == message


def test_two_traces_of_one_name_are_not_written() -> None:
    with pytest.raises(InputError) as caught:
        write_traces(a_header(3), [a_trace("a#2"), a_trace("b"), a_trace("a#2")])
    assert str(caught.value) == "got two traces of the name `a#2`, expected one"


@pytest.mark.parametrize(
    "name, shown",
    [("", ""), ("a\x1b", "a\\x1b"), (" a", " a"), ("#2", None), ("a#2", None), (200 * "x" + "#3", None)],
)
def test_a_trace_is_called_as_an_item_may_be(name: str, shown: str | None) -> None:
    data = write_traces(a_header(1), [a_trace(name)])
    if shown is None:
        assert read_traces(data).trace[0].id == name
        return
    with pytest.raises(InputError) as caught:
        read_traces(data)
    assert str(caught.value) == (
        f"line 2: got the id `{shown}`, expected 1 to 200 printable characters without outer spaces, and `#2` and so "
        "on for a later turn"
    )


names = st.text(max_size=8).filter(is_item_id)
slices_of = st.dictionaries(names.filter(lambda name: "=" not in name), names, max_size=2)
ids = st.lists(names, min_size=1, max_size=3, unique=True)
tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(tuple)


@given(ids, tokens, tokens, slices_of)
def test_any_traces_are_read_back(
    names: list[str], prompt: tuple[int, ...], answer: tuple[int, ...], slices: dict[str, str]
) -> None:
    traces = tuple(a_trace(name, prompt=prompt, answer=answer, slices=slices) for name in names)
    read = read_traces(write_traces(a_header(len(traces)), traces))
    assert read.trace == traces


@given(st.binary(max_size=60) | st.integers(0, len(FILE)).map(lambda at: FILE[:at]))
def test_any_bytes_are_traces_or_an_error(data: bytes) -> None:
    try:
        read = read_traces(data)
    except InputError:
        return
    assert write_traces(read.header, read.trace) == data
