from __future__ import annotations

from pathlib import Path

from qlock.engines.interface import Engine, KeptFile, Work
from qlock.engines.replay import open_engine
from qlock.engines.replay.recorder import Recorder
from tests.engines.test_replay import CONTRAST, GENERATE, HEADER, LOAD, MEASURE, REFERENCE, loaded


def test_what_a_recorder_heard_is_replayed_from_its_file(tmp_path: Path) -> None:
    with Recorder(loaded(), tmp_path) as recorder:
        answers = everything(recorder)
    replay = open_engine(lib_folder=tmp_path, variables={"CUDA_VISIBLE_DEVICES": "GPU-1"})
    assert everything(replay) == answers
    replay.close()


def everything(engine: Engine) -> list[object]:
    work: tuple[Work, ...] = (GENERATE, MEASURE)
    answers: list[object] = [engine.load(LOAD), engine.label(), engine.system_info(), engine.log_tail()]
    answers += engine.tokenize(["hi"], add_special=True, parse_special=False)
    for one in work:
        engine.submit(one)
        answers.append(engine.next_done())
    answers += [engine.refer(KeptFile(path="/elsewhere/a.kld")), engine.refer(REFERENCE)]
    engine.submit(CONTRAST)
    answers.append(engine.next_done())
    answers += [engine.probe([(1, 2)], steps=3), engine.mapped_files(), engine.devices(), engine.memory()]
    answers.append(engine.vocabulary(HEADER))
    return [*answers, *engine.tokenize(["ho"], add_special=True, parse_special=False)]
