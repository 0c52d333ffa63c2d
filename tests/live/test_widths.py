"""The same lock gives the same bytes at any width that the probe allows, and falls back where it does not."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.live.tiny_project import DENSE, MIXTURE, answers_digest, lock_of, make, qlock, run_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize("slots", [1, 8, 16])
def test_a_dense_model_repeats_bit_for_bit(tmp_path: Path, llama_bin: Path, slots: int) -> None:
    spec = make(tmp_path, shape=DENSE, slots=slots, items=20, answer_tokens=24)
    made = qlock("resolve", spec)
    assert made.returncode == 0, made.stderr
    lock = lock_of(tmp_path)
    pins = tomllib.loads(lock.read_text())
    assert [point["repeatable"] for point in pins["point"]] == ["bitwise"]
    assert [setting["slots"] for setting in pins["setting"]] == [slots]
    digests = set()
    for _ in range(2):
        ran = qlock("run", lock)
        assert ran.returncode == 0, ran.stderr
        digests.add(answers_digest(run_of(tmp_path)))
        shutil.rmtree(tmp_path / "runs")
    assert len(digests) == 1


def test_an_expert_model_falls_back_to_one_slot_and_the_lock_says_why(
    tmp_path: Path, llama_bin: Path
) -> None:
    quantize = (str(llama_bin / "llama-quantize"), "Q5_K")
    spec = make(tmp_path, shape=MIXTURE, quantize=quantize, slots=8, items=6, answer_tokens=16)
    made = qlock("resolve", spec)
    assert made.returncode == 0, made.stderr
    lock = lock_of(tmp_path)
    pins = tomllib.loads(lock.read_text())
    (setting,), (point,) = pins["setting"], pins["point"]
    assert (setting["slots_requested"], setting["slots"]) == (8, 1)
    assert setting["slots_why"].startswith("tiny@s: ")
    assert "when the schedule changes" in setting["slots_why"] or "beside an answer" in setting["slots_why"]
    assert point["repeatable"] == "bitwise"
    assert qlock("resolve", "--check", spec).returncode == 0
    digests = set()
    for _ in range(2):
        ran = qlock("run", lock)
        assert ran.returncode == 0, ran.stderr
        digests.add(answers_digest(run_of(tmp_path)))
        shutil.rmtree(tmp_path / "runs")
    assert len(digests) == 1
