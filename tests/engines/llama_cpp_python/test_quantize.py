"""The quantizer in its child: the bytes of llama.cpp's own tool, and every way it can fail said in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.llama_cpp_python import quantize as module
from qlock.engines.llama_cpp_python.quantize import quantize
from qlock.errors import AbsentError, EngineError, InputError
from tests.conftest import quantized

pytestmark = pytest.mark.live


@pytest.mark.parametrize("file_type", ["F16", "Q8_0"])
def test_it_writes_the_bytes_that_llama_quantize_writes(
    bindings: None, tmp_path: Path, llama_bin: Path, smollm2_q4_1: Path, file_type: str
) -> None:
    source = smollm2_q4_1 if file_type == "F16" else quantized(llama_bin, smollm2_q4_1, "F16")

    quantize(source, tmp_path / "ours.gguf", file_type=file_type, threads=2)

    its = quantized(llama_bin, source, file_type)
    assert (tmp_path / "ours.gguf").read_bytes() == its.read_bytes()


def test_the_bytes_do_not_depend_on_the_threads(bindings: None, tmp_path: Path, tiny: Path) -> None:
    for threads in (1, 2, 3):
        quantize(tiny, tmp_path / f"{threads}.gguf", file_type="Q4_0", threads=threads)

    one, two, three = ((tmp_path / f"{threads}.gguf").read_bytes() for threads in (1, 2, 3))
    assert one == two == three
    assert one != tiny.read_bytes()


def test_a_file_that_is_no_gguf_is_refused_and_nothing_is_left_behind(bindings: None, tmp_path: Path) -> None:
    source = tmp_path / "not.gguf"
    source.write_bytes(b"not a GGUF, and long enough to be read as a header")

    with pytest.raises(EngineError) as caught:
        quantize(source, tmp_path / "out.gguf", file_type="Q8_0", threads=1)

    assert str(caught.value).startswith("the quantizer died (exit code 1): ")
    assert "invalid magic" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["not.gguf"]


def test_a_file_that_was_there_stays_when_the_new_one_fails(bindings: None, tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"
    target.write_bytes(b"before")

    with pytest.raises(EngineError):
        quantize(tmp_path / "absent.gguf", target, file_type="Q8_0", threads=1)

    assert target.read_bytes() == b"before"


def test_an_unknown_file_type_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        quantize(tmp_path / "a.gguf", tmp_path / "b.gguf", file_type="Q9", threads=1)

    assert str(caught.value) == (
        "got the file type `Q9`, expected one of F16, Q4_0, Q4_1, Q8_0, Q2_K, Q3_K_M, Q4_K_M, Q6_K"
    )


def test_a_folder_that_is_not_there_is_named(bindings: None, tmp_path: Path, tiny: Path) -> None:
    with pytest.raises(EngineError) as caught:
        quantize(tiny, tmp_path / "no" / "b.gguf", file_type="Q8_0", threads=1)

    assert str(caught.value).startswith("the quantizer died (")


def test_a_target_that_is_a_folder_is_named(bindings: None, tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "b.gguf").mkdir()

    with pytest.raises(AbsentError) as caught:
        quantize(tiny, tmp_path / "b.gguf", file_type="Q8_0", threads=1)

    assert str(caught.value) == f"cannot write `{tmp_path / 'b.gguf'}`: Is a directory"
    assert [path.name for path in tmp_path.iterdir()] == ["b.gguf"]


def test_a_quantizer_that_hangs_is_ended(
    bindings: None, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DEADLINE_S", 0.0)

    with pytest.raises(EngineError) as caught:
        quantize(tiny, tmp_path / "b.gguf", file_type="Q8_0", threads=1)

    assert str(caught.value) == "the quantizer did not finish within 0 s"
    assert list(tmp_path.iterdir()) == []
