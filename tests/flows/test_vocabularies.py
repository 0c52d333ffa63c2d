from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qlock.core.gguf import Header, read_header
from qlock.core.gguf_vocabulary import vocabulary_digest, vocabulary_file
from qlock.errors import AbsentError
from qlock.flows.vocabularies import Vocabularies
from tests.fakes.project import tiny_gguf


def header(seed: int = 1, *, width: int = 8) -> Header:
    data = tiny_gguf(seed, embedding_length=width)
    found = read_header(data, len(data))
    assert isinstance(found, Header)
    return found


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_vocabulary_is_kept_under_its_digest_until_the_end(place: Path) -> None:
    with Vocabularies() as kept:
        digest = kept.keep(header())
        assert digest == vocabulary_digest(header())
        assert kept.path(digest).read_bytes() == vocabulary_file(header())
        assert kept.path(digest).name == f"{digest.partition(':')[2]}.gguf"
    assert list(place.iterdir()) == []


def test_without_any_there_is_no_folder(place: Path) -> None:
    with Vocabularies():
        assert list(place.iterdir()) == []


def test_equal_ones_are_kept_once_also_by_many_at_once(place: Path) -> None:
    with Vocabularies() as kept, ThreadPoolExecutor(8) as pool:
        headers = [header(seed, width=seed % 3) for seed in range(40)]
        digests = list(pool.map(kept.keep, headers))
        assert len(set(digests)) == 3
        (folder,) = place.iterdir()
        assert len(list(folder.glob("*.gguf"))) == 3


def test_no_room_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    with Vocabularies() as kept, pytest.raises(AbsentError) as caught:
        kept.keep(header())
    assert caught.value.message.startswith("nothing can be put into the temporary folder")
