"""The noise floor with the real engine on a tiny model, by the command line alone.

A sampled exam is asked several times over, so its score depends on the items that were chosen; the answers to given seeds
repeat bit for bit on a CPU, so a second run of the lock adds nothing to that.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.live.tiny_project import answers_digest, lock_of, make, qlock

_MORE = """
[[setting]]
name = "q8kv"
context_tokens = 512
slots = 4
threads = 1
cache_type_k = "q8_0"

[compare]
reference = "tiny@s"
treatment = "kv"

[[gate]]
rule = "non-inferior"
suite = "exam"
margin_share = 0.02
"""
_ITEMS = 10
_NOTE = (
    "note: gate non-inferior of exam: undecidable: 10 items cannot pass a margin of 2.0 % even where nothing differs, "
    "189 or more can"
)


def a_project(folder: Path) -> Path:
    """A project of one model under two settings, with an exam of which some answers are right; gives its spec."""
    spec = make(folder, answer_tokens=8)
    rows = [
        {"id": f"q{n}", "prompt": f"a word, {n}: ", "expected": "e", "grader": {"kind": "contains"}}
        for n in range(_ITEMS)
    ]
    (folder / "tasks/exam.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec.write_text(spec.read_text() + _MORE)
    return spec


def test_noise_of_items_and_noise_between_runs_are_told_apart(tmp_path: Path) -> None:
    resolved = qlock("resolve", a_project(tmp_path), cwd=tmp_path)
    assert resolved.returncode == 0, resolved.stderr
    assert _NOTE in resolved.stderr.split("\n")
    lock = lock_of(tmp_path)
    runs = []
    for words in ((), ("--repeat-lock",)):
        ran = qlock("run", lock, *words, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        # The gate is told to be out of reach before an item is asked.
        assert ran.stderr.index(_NOTE) < ran.stderr.index("exam.tiny@q8kv.1: 0/10 items")
        runs.append(tmp_path / ran.stdout.strip())
    run, again = runs
    assert again.name == f"{run.name}.2"
    assert answers_digest(run) == answers_digest(again)

    said = qlock("diff", run, "--noise", again, cwd=tmp_path)
    assert said.returncode == 1, said.stderr
    lines = [" ".join(line.split()) for line in said.stdout.split("\n")]
    (scores,) = (line for line in lines if line.startswith("exam mean mark 20 "))
    interval = re.search(r" (-[0-9.]+) to \+([0-9.]+) points ", scores)
    assert interval is not None, scores
    assert float(interval[1]) < -2
    for side in "AB":
        assert f"exam: noise: between two runs of side {side}, the marks of 0 % of 20 items moved" in lines
    (gate,) = (line for line in lines if line.startswith("non-inferior exam "))
    assert gate.endswith(", 20 pairs 0 % undecided"), gate
