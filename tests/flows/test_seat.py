from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qlock.core.kept_logits import Layout, head_bytes
from qlock.engines.interface import Contrast, Contrasted, Engine, Keep, Kept, KeptFile, Load, Measure
from qlock.errors import EngineError
from qlock.flows.seat import Seat
from tests.broken.make_gguf import LLAMA, gguf
from tests.fakes.documents import a_setting
from tests.fakes.engine import BOS, VOCAB_TOKENS, FakeEngine, Script


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path / "engine")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    (tmp_path / "m.gguf").write_bytes(b"weights")
    return Load(weights=(str(tmp_path / "m.gguf"),), setting=a_setting())


def test_an_engine_is_started_when_it_is_needed_and_ended_with_the_seat(script: Script, load: Load) -> None:
    with Seat(script.open_engine) as seat:
        assert (script.opened, seat.is_up) == (0, False)
        seat.load(load)
        assert (script.opened, seat.is_up) == (1, True)
    assert (script.closed, seat.is_up) == (1, False)


def test_a_seat_answers_as_its_engine(script: Script, load: Load) -> None:
    with Seat(script.open_engine) as seat:
        engine: Engine = seat
        read_back = engine.load(load)
        assert read_back.slots == load.setting.slots
        assert engine.tokenize(["a"], add_special=True, parse_special=False) == [(256, 97)]
        engine.submit(Measure(id="x", tokens=(1, 2), score_from=1))
        assert engine.next_done().id == "x"
        assert engine.refer(load) == read_back
        assert [row.rows for row in engine.probe([(1,)], steps=2)] == [1] * 7
        assert [Path(file.path).name for file in engine.mapped_files()] == [
            "libc.so.6",
            "libllama.so",
            "libm.so.6",
        ]
        assert (engine.label(), engine.system_info(), engine.log_tail()) == (
            "b6000 (fake)",
            "CPU : FAKE = 1",
            "the last line",
        )


def test_what_stands_beside_the_point_does_so_after_a_restart_and_not_at_another_point(
    script: Script, load: Load
) -> None:
    with Seat(script.open_engine) as seat:
        seat.point(lambda engine: engine.load(load))
        seat.beside(lambda engine: engine.refer(load))
        seat.restart()
        assert (script.loads, script.references) == (["m.gguf"] * 2, ["m.gguf"] * 2)
        seat.point(lambda engine: engine.load(load))
        seat.restart()
        assert (script.loads, script.references) == (["m.gguf"] * 4, ["m.gguf"] * 2)


def test_a_seat_reads_a_vocabulary_as_its_engine(script: Script, tmp_path: Path) -> None:
    header = tmp_path / "words.gguf"
    header.write_bytes(gguf([LLAMA], []))
    with Seat(script.open_engine) as seat:
        assert seat.vocabulary(str(header)).bos_text == "<s>"
        assert script.vocabularies == ["words.gguf"]


def test_rows_that_one_seat_kept_are_a_reference_in_another(
    script: Script, load: Load, tmp_path: Path
) -> None:
    path, tokens = tmp_path / "a.kld", (BOS, 1, 2, 3)
    layout = Layout(window_tokens=4, vocab_tokens=VOCAB_TOKENS, parts=1)
    path.write_bytes(head_bytes(layout, np.array([tokens], dtype=np.int32)))
    with Seat(script.open_engine) as seat:
        seat.load(load)
        seat.submit(Keep(id="k", tokens=tokens, score_from=3, path=str(path), part=0))
        kept = seat.next_done()
    assert isinstance(kept, Kept)
    with Seat(script.open_engine) as seat:
        seat.load(load)
        assert seat.refer(KeptFile(path=str(path))) is None
        seat.submit(Contrast(id="c", tokens=tokens, score_from=3, pieces=False))
        done = seat.next_done()
        assert isinstance(done, Contrasted)
        assert done.nats == kept.nats
        assert done.reference_nats == pytest.approx(kept.nats, abs=2e-4)
        path.unlink()
        with pytest.raises(EngineError):
            seat.refer(KeptFile(path=str(path)))
    assert script.references == ["a.kld", "a.kld"]


def test_a_point_is_prepared_now_and_again_in_every_new_engine(script: Script, load: Load) -> None:
    prepared: list[Engine] = []

    def prepare(engine: Engine) -> None:
        engine.load(load)
        prepared.append(engine)

    with Seat(script.open_engine) as seat:
        seat.point(prepare)
        seat.restart()
        assert (script.opened, script.closed, script.loads) == (2, 1, ["m.gguf", "m.gguf"])
    assert len(set(map(id, prepared))) == 2
    assert all(isinstance(engine, FakeEngine) for engine in prepared)


def test_a_restart_without_a_point_only_ends_what_is_left(script: Script, load: Load) -> None:
    seat = Seat(script.open_engine)
    seat.load(load)
    seat.restart()
    assert (script.opened, script.closed, seat.is_up) == (1, 1, False)
    seat.close()
    assert script.closed == 1


def test_an_engine_that_does_not_start_again_is_an_error(script: Script, load: Load) -> None:
    seat = Seat(script.open_engine)
    seat.point(lambda engine: engine.load(load))
    script.start_error = "the engine did not start"
    with pytest.raises(EngineError) as caught:
        seat.restart()
    assert (str(caught.value), seat.is_up) == ("the engine did not start", False)


def test_the_log_of_an_engine_that_failed_is_kept(script: Script, load: Load) -> None:
    with Seat(script.open_engine) as seat:
        seat.point(lambda engine: engine.load(load))
        assert seat.failure_log == ""
        seat.restart()
        assert seat.failure_log == "the last line"

    def fail(engine: Engine) -> None:
        engine.load(load)
        raise EngineError("it does not answer")

    with Seat(script.open_engine) as seat:
        with pytest.raises(EngineError):
            seat.point(fail)
        assert seat.failure_log == "the last line"
