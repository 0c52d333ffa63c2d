"""A vocabulary without weights on the libraries of a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.interface import vocabulary_of
from qlock.engines.llama_cpp import LlamaCpp
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import Opener, load_of
from tests.engines.llama_cpp_python.test_vocab import TEXTS, alone


@pytest.mark.live
def test_texts_become_the_same_tokens_as_its_server_makes_of_them(
    real: LlamaCpp, tiny: Path, tmp_path: Path
) -> None:
    ways = [(add, parse) for add in (False, True) for parse in (False, True)]
    told = real.vocabulary(alone(tiny, tmp_path))
    without = [real.tokenize(TEXTS, add_special=add, parse_special=parse) for add, parse in ways]
    assert vocabulary_of(real.load(load_of(tiny))) == told
    assert [real.tokenize(TEXTS, add_special=add, parse_special=parse) for add, parse in ways] == without


def test_a_build_whose_libraries_cannot_be_driven_says_so(played: Opener, tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        played().vocabulary(str(tmp_path / "words.gguf"))
    assert caught.value.message.startswith("a vocabulary cannot be read without its weights: ")
