from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.facts import Buffer, ProbeRow
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Engine,
    Generate,
    Generated,
    KeptFile,
    Load,
    Measure,
    Measured,
    Vocabulary,
)
from qlock.engines.replay import Replay, open_engine
from qlock.engines.replay.tape import (
    TAPE,
    DoneOnce,
    Entry,
    LoadedOnce,
    MappedOnce,
    Named,
    ProbedOnce,
    ReferredOnce,
    SpokenOnce,
    TokenizedOnce,
    load_key,
    probe_key,
    reference_key,
    text_key,
    vocabulary_key,
    work_key,
)
from qlock.errors import AbsentError, EngineError
from qlock.world.interface import MappedFile
from tests.fakes.decoder import GREEDY, SETTING, read_back_of

LOAD = Load(weights=("/here/a.gguf", "/here/b.gguf"), setting=SETTING)
GENERATE = Generate(id="g", tokens=(1, 5), sampling=GREEDY, logprobs=False, logits_digest=False)
MEASURE = Measure(id="m", tokens=(1, 5, 6), score_from=1)
GENERATED = Generated(
    id="recorded",
    tokens=(7,),
    text="h\u2028",
    ending="eos",
    why="",
    logprobs=(),
    logits_digest="",
    prefill_s=0.5,
    decode_s=0.25,
)
MEASURED = Measured(id="m", nats=(0.1, 0.2), elapsed_s=1.0)
REFERENCE = Load(weights=("/here/f16.gguf",), setting=SETTING)
CONTRAST = Contrast(id="c", tokens=(1, 5, 6), score_from=1, pieces=False)
CONTRASTED = Contrasted(
    id="c",
    nats=(0.1, 0.2),
    reference_nats=(0.1, 0.1),
    kld_nats=(0.0, 0.5),
    reverse_kld_nats=(0.0, 0.25),
    same_top=(True, False),
    pieces=(),
    elapsed_s=1.0,
)
ROWS = (
    ProbeRow(
        variation="repeat", rows=1, rows_bitwise=1, rows_tokens=1, logit_difference_max=0.0, kl_nats_mean=0.0
    ),
)
HEADER = "/scratch/words.gguf"
WORDS = Vocabulary(add_bos=True, bos_token=1, bos_text="<s>", eos_text="</s>")
FILES = (MappedFile(path="/lib/libllama.so", device="08:01", inode=7, deleted=False),)
MEMORY = (Buffer(place="CUDA0", use="KV", size_bytes=1_000_000),)

TAPE_OF_ALL: tuple[Entry, ...] = (
    Named(label="l", system_info="s"),
    LoadedOnce(key=load_key(LOAD), read_back=read_back_of(SETTING), devices=("0000:18:00.0",), memory=MEMORY),
    TokenizedOnce(key=text_key(LOAD, "hi", add_special=True, parse_special=False), tokens=(1, 2)),
    DoneOnce(key=work_key(LOAD, GENERATE), done=GENERATED),
    DoneOnce(key=work_key(LOAD, MEASURE), done=MEASURED),
    ReferredOnce(key=reference_key(LOAD, REFERENCE), read_back=read_back_of(SETTING)),
    ReferredOnce(key=reference_key(LOAD, KeptFile(path="/kept/a.kld")), read_back=None),
    DoneOnce(key=work_key(LOAD, CONTRAST, reference=REFERENCE), done=CONTRASTED),
    ProbedOnce(key=probe_key(LOAD, [(1, 2)], 3), rows=ROWS),
    MappedOnce(files=FILES),
    SpokenOnce(key=vocabulary_key(HEADER), vocabulary=WORDS),
    TokenizedOnce(key=text_key(HEADER, "ho", add_special=True, parse_special=False), tokens=(3,)),
)


def loaded() -> Engine:
    engine = Replay(TAPE_OF_ALL)
    engine.load(LOAD)
    return engine


def test_each_question_gets_the_answer_that_was_recorded() -> None:
    engine = Replay(TAPE_OF_ALL)
    assert engine.load(LOAD) == read_back_of(SETTING)
    assert engine.tokenize(["hi", "hi"], add_special=True, parse_special=False) == [(1, 2), (1, 2)]
    assert engine.probe([(1, 2)], steps=3) == ROWS
    assert (engine.label(), engine.system_info(), engine.log_tail()) == ("l", "s", "")
    assert engine.mapped_files() == FILES
    assert engine.devices() == ("0000:18:00.0",)
    assert engine.memory() == MEMORY


def test_a_vocabulary_alone_is_replayed_by_the_name_of_its_file() -> None:
    engine = loaded()
    assert engine.vocabulary("/elsewhere/words.gguf") == WORDS
    assert engine.tokenize(["ho"], add_special=True, parse_special=False) == [(3,)]
    with pytest.raises(
        EngineError, match=r"^the tape holds no answer to tokenizing a text of `2` characters$"
    ):
        engine.tokenize(["hi"], add_special=True, parse_special=False)
    with pytest.raises(EngineError) as caught:
        engine.vocabulary("/scratch/others.gguf")
    assert caught.value.message == "the tape holds no answer to loading the vocabulary `others.gguf`"
    engine.load(LOAD)
    assert engine.tokenize(["hi"], add_special=True, parse_special=False) == [(1, 2)]


def test_work_is_done_in_the_order_it_came_under_its_own_id() -> None:
    engine = loaded()
    engine.submit(MEASURE)
    engine.submit(msgspec.structs.replace(GENERATE, id="mine"))
    assert engine.next_done() == MEASURED
    assert engine.next_done() == msgspec.structs.replace(GENERATED, id="mine")
    with pytest.raises(ValueError, match=r"^nothing is under way$"):
        engine.next_done()


def test_what_was_not_recorded_is_an_error() -> None:
    with pytest.raises(EngineError) as caught:
        Replay(TAPE_OF_ALL).load(msgspec.structs.replace(LOAD, weights=("/x/c.gguf",)))
    assert caught.value.message == "the tape holds no answer to loading `c.gguf` under `tiny`"
    engine = loaded()
    with pytest.raises(EngineError) as caught:
        engine.tokenize(["hi"], add_special=False, parse_special=False)
    assert caught.value.message == "the tape holds no answer to tokenizing a text of `2` characters"
    engine.submit(msgspec.structs.replace(MEASURE, tokens=(1, 5, 7)))
    with pytest.raises(EngineError) as caught:
        engine.next_done()
    assert caught.value.message == "the tape holds no answer to the work `m`"
    with pytest.raises(EngineError) as caught:
        engine.probe([(1, 2)], steps=4)
    assert caught.value.message == "the tape holds no answer to probing `1` prompts for `4` steps"


def test_a_contrast_against_another_reference_or_after_another_load_is_another_question() -> None:
    engine = loaded()
    engine.refer(REFERENCE)
    engine.submit(CONTRAST)
    assert engine.next_done() == CONTRASTED
    changes: tuple[Callable[[], object], ...] = (
        lambda: engine.load(LOAD),
        lambda: engine.refer(KeptFile(path="/a.kld")),
    )
    for change in changes:
        change()
        engine.submit(CONTRAST)
        with pytest.raises(EngineError) as caught:
            engine.next_done()
        assert caught.value.message == "the tape holds no answer to the work `c`"
    with pytest.raises(EngineError) as caught:
        engine.refer(KeptFile(path="/b.kld"))
    assert caught.value.message == "the tape holds no answer to this reference"


def test_broken_work_is_replayed_as_broken() -> None:
    broken = Broken(id="x", why="w")
    engine = Replay([DoneOnce(key=work_key(None, MEASURE), done=broken)])
    engine.submit(MEASURE)
    assert engine.next_done() == Broken(id="m", why="w")


def test_a_tape_that_is_not_there_is_absent(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as absent:
        open_engine(lib_folder=tmp_path)
    assert absent.value.message == f"got no tape at `{tmp_path / TAPE}`: No such file or directory"
    with pytest.raises(AbsentError) as absent:
        open_engine()
    assert (absent.value.message, absent.value.hint) == (
        "the replay engine has no tape",
        "set `path` to a folder with `tape.jsonl`",
    )
