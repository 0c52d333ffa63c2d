from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.engines.replay.tape import (
    TAPE,
    load_key,
    probe_key,
    read_tape,
    reference_key,
    text_key,
    vocabulary_key,
    work_key,
)
from qlock.errors import EngineError
from tests.engines.test_replay import GENERATE, LOAD, REFERENCE, TAPE_OF_ALL
from tests.fakes.decoder import SETTING


def test_where_the_files_lie_does_not_count() -> None:
    assert load_key(LOAD) == load_key(
        msgspec.structs.replace(LOAD, weights=("/there/a.gguf", "/there/b.gguf"))
    )


def test_a_question_under_another_load_is_another_question() -> None:
    other = msgspec.structs.replace(LOAD, setting=msgspec.structs.replace(SETTING, threads=1))
    assert len({work_key(load, GENERATE) for load in (LOAD, other, None)}) == 3


@pytest.mark.parametrize(
    "line, why",
    [
        (b'{"kind":"named"}', "Object missing required field `label`"),
        (b"{", "Input data was truncated"),
        (b'{"kind":"moo"}', "Invalid value 'moo' - at `$.kind`"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    (tmp_path / TAPE).write_bytes(msgspec.json.encode(TAPE_OF_ALL[0]) + b"\n" + line + b"\n")
    with pytest.raises(EngineError) as caught:
        read_tape(tmp_path / TAPE)
    assert caught.value.message == f"line `2` of the tape is none: {why}"


def test_no_two_kinds_of_question_share_a_key() -> None:
    keys = [
        load_key(LOAD),
        vocabulary_key("/a/words.gguf"),
        text_key(LOAD, "a", add_special=True, parse_special=False),
        text_key("/a/words.gguf", "a", add_special=True, parse_special=False),
        work_key(LOAD, GENERATE),
        reference_key(LOAD, REFERENCE),
        probe_key(LOAD, [(1,)], 2),
    ]
    assert len(set(keys)) == len(keys)


def test_where_a_vocabulary_lies_does_not_count() -> None:
    assert vocabulary_key("/a/words.gguf") == vocabulary_key("/b/words.gguf")
