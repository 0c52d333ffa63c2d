"""A vocabulary without weights on real llama.cpp, against the one of the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.core.gguf import Header, read_header
from qlock.core.gguf_vocabulary import vocabulary_file
from qlock.engines.interface import Load, Measure, Vocabulary, vocabulary_of
from qlock.engines.llama_cpp_python import LlamaCppPython
from qlock.errors import EngineError
from tests.fakes.decoder import SETTING
from tests.fakes.tiny_models import BOS

pytestmark = pytest.mark.live

TEXTS = (
    "",
    "The sea moved, the lamp turned.",
    "<|im_start|>user\n1 and 1 is<|im_end|>\n",
    "</s>é\x00🦙\u2028 Ünï  \n\n\t",
    "a" * 5_000,
)


def alone(model: Path, folder: Path) -> str:
    """The header of a model cut down to its vocabulary, as a file."""
    with model.open("rb") as file:
        header = read_header(file.read(8 << 20), model.stat().st_size)
    assert isinstance(header, Header)
    path = folder / "words.gguf"
    path.write_bytes(vocabulary_file(header))
    return str(path)


def said(engine: LlamaCppPython) -> list[list[tuple[int, ...]]]:
    """The texts as token ids, in every way to ask."""
    return [
        engine.tokenize(TEXTS, add_special=add, parse_special=parse)
        for add in (False, True)
        for parse in (False, True)
    ]


@pytest.mark.parametrize("name", ["tiny", "tiny_mixture", "smollm2_q4_1", "smollm2_q2_k"])
def test_texts_become_the_same_tokens_with_and_without_the_weights(
    shared_engine: LlamaCppPython, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    model: Path = request.getfixturevalue(name)
    told = shared_engine.vocabulary(alone(model, tmp_path))
    without = said(shared_engine)
    read_back = shared_engine.load(Load(weights=(str(model),), setting=SETTING))
    assert told == vocabulary_of(read_back)
    assert without == said(shared_engine)


def test_a_vocabulary_takes_the_place_of_a_point_and_the_reverse(
    shared_engine: LlamaCppPython, tiny: Path, tmp_path: Path
) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    told = shared_engine.vocabulary(alone(tiny, tmp_path))
    assert told == Vocabulary(add_bos=True, bos_token=BOS, bos_text="<s>", eos_text="</s>", vocab_tokens=320)
    with pytest.raises(EngineError, match=r"^the engine could not probe the schedule: no model is loaded$"):
        shared_engine.probe([(1,)], steps=1)
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    assert len(shared_engine.probe([(1,)], steps=1)) > 0


def test_one_that_cannot_be_loaded_is_refused_and_the_next_is_heard(
    shared_engine: LlamaCppPython, tiny: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(
        Path(alone(tiny, tmp_path))
        .read_bytes()
        .replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0moomo", 1)
    )
    with pytest.raises(EngineError) as caught:
        shared_engine.vocabulary(str(wrong))
    assert caught.value.message.startswith(
        "the engine could not load the vocabulary: llama.cpp could not load the vocabulary: "
    )
    assert "unknown model architecture: 'moomo'" in caught.value.message
    with pytest.raises(EngineError, match=r"no model is loaded$"):
        shared_engine.tokenize(["a"], add_special=True, parse_special=False)
    assert shared_engine.vocabulary(alone(tiny, tmp_path)).bos_token == BOS


def test_a_vocabulary_cannot_be_loaded_while_work_is_under_way(
    shared_engine: LlamaCppPython, tiny: Path, tmp_path: Path
) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    shared_engine.submit(Measure(id="m", tokens=(BOS, 5), score_from=1))
    with pytest.raises(ValueError, match=r"^cannot load a vocabulary while work is under way$"):
        shared_engine.vocabulary(alone(tiny, tmp_path))
    assert shared_engine.next_done().id == "m"
