"""Whether an engine that has loaded a point does as it was told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from qlock.core.verify import Finding
from qlock.engines.interface import Deviation, Load
from qlock.flows.obedience import card_findings, said_findings
from tests.fakes.decoder import SETTING
from tests.fakes.engine import Script
from tests.fakes.project import Project

CARDS = ("0000:01:00.0", "0000:02:00.0")
DEVIATIONS = (
    Deviation(name="sampling.temperature", expected="0.0", found="0.8"),
    Deviation(name="chat_template", expected="none", found="missing", why="the server does not say it"),
)


def test_all_that_an_engine_says_otherwise_comes_together(tmp_path: Path) -> None:
    script = Script(tmp_path / "lib")
    script.devices = lambda _: ("0000:01:00.0",)
    script.deviations = DEVIATIONS
    model = tmp_path / "model.gguf"
    model.write_bytes(b"weights")
    engine = script.open_engine()
    engine.load(Load(weights=(str(model),), setting=SETTING))

    def finding(name: str, expected: str, found: str, why: str = "") -> Finding:
        return Finding(
            rule="read-back",
            where=f"point.x.{name}",
            expected=expected,
            found=found,
            effect="output",
            why=why,
        )

    assert said_findings(engine, "point.x", SETTING, given=()) == [
        finding("cards", "none", "0000:01:00.0"),
        finding("told.sampling.temperature", "0.0", "0.8"),
        finding("told.chat_template", "none", "missing", "the server does not say it"),
    ]


def test_an_engine_that_says_otherwise_is_refused_at_resolve_and_at_run(project: Project) -> None:
    project.lock()
    project.script.deviations = DEVIATIONS
    ran = project.run()
    assert ran.state == "refused"
    assert [(one.rule, one.where, one.found) for one in ran.findings] == [
        ("read-back", "point.A@plain.told.sampling.temperature", "0.8"),
        ("read-back", "point.A@plain.told.chat_template", "missing"),
    ]
    assert project.script.asked == []


@pytest.mark.parametrize(
    "setting, used",
    [
        ({"gpu_layers": 0}, ()),
        ({"gpu_layers": 1, "split_mode": "layer"}, ("0000:01:00.0", "0000:02:00.0")),
        ({"gpu_layers": 1, "split_mode": "none", "main_gpu": 1}, ("0000:02:00.0",)),
    ],
)
def test_a_setting_says_which_cards_are_used(setting: dict[str, Any], used: tuple[str, ...]) -> None:
    given = CARDS
    asked_for = msgspec.structs.replace(SETTING, **setting)
    assert card_findings("point.x", asked_for, given=given, used=used) == []
    for other in ((), ("0000:03:00.0",), given, given[::-1], (*given, "0000:03:00.0")):
        found = card_findings("point.x", asked_for, given=given, used=other)
        assert [one.expected for one in found] == ([] if other == used else [", ".join(used) or "none"])
