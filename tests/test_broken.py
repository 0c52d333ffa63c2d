"""Every broken file is refused in its own words, with the exit code of an unreadable input."""

from __future__ import annotations

import io
from typing import Any

import pytest

from qlock.core.lock import read_lock
from qlock.core.record import Record, read_record
from qlock.core.spec import read_spec
from qlock.errors import ExitCode, InputError
from tests.broken.make import FOLDER, broken


def record_of(data: bytes, *, name: str) -> Record:
    return read_record(io.BytesIO(data), name=name)


REMEDY = "if this is meant: python -m tests.broken.make"
BROKEN = broken()
READERS: dict[str, Any] = {"spec": read_spec, "lock": read_lock, "record": record_of}


@pytest.mark.parametrize("name", BROKEN)
def test_the_file_is_what_is_made(name: str) -> None:
    file = FOLDER / name
    assert file.exists(), REMEDY
    assert file.read_bytes() == BROKEN[name].data, REMEDY


def test_every_broken_document_is_made() -> None:
    kept = {path.name for path in FOLDER.iterdir() if path.name.startswith(("spec.", "lock.", "record."))}
    assert kept == set(BROKEN)


@pytest.mark.parametrize("name", BROKEN)
def test_it_is_refused_in_its_own_words(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    with pytest.raises(InputError) as caught:
        READERS[name.partition(".")[0]](data, name=name)
    assert (str(caught.value), caught.value.hint) == (
        BROKEN[name].message.replace("FILE", name),
        BROKEN[name].hint,
    )
    assert caught.value.exit_code is ExitCode.INPUT
