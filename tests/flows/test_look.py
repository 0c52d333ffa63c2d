from __future__ import annotations

import msgspec
import pytest

from qlock.core.effects import effects_of
from qlock.core.facts import Device
from qlock.core.verify import Finding
from tests.fakes.project import Project, fields_of, items_jsonl, other_than, tiny_gguf, wheres
from tests.fakes.world import CPU, FixedHost

DEVICE = "device.cpu-amd-1a-02"
ENGINE = "engine.llama-cpp-python"


def test_every_finding_before_the_start_is_shown_at_once(project: Project) -> None:
    project.write("models/a.gguf", tiny_gguf(9))
    project.write("tasks/digits.jsonl", items_jsonl(7))
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="another", cores=3)))
    opened = project.script.opened
    ran = project.run()
    assert (ran.state, ran.folder, project.script.opened) == ("refused", None, opened)
    assert [(finding.rule, finding.where, finding.effect) for finding in ran.findings] == [
        ("model-files", "model.A.file.a.gguf.sha256", "output"),
        ("model-files", "model.A.file.a.gguf.blake3", "output"),
        ("suite-files", "suite.digits.file.items.size_bytes", "output"),
        ("suite-files", "suite.digits.file.items.sha256", "output"),
        ("suite-files", "suite.digits.file.items.blake3", "output"),
        ("device", f"{DEVICE}.cpu_model", "output"),
        ("device", f"{DEVICE}.cores", "timing"),
    ]
    assert ran.findings[0].why == "tensors differ; tokenizer, template, metadata identical"
    assert not project.runs.exists()


def test_what_is_not_here_is_absent_and_cannot_be_allowed(project: Project) -> None:
    (project.path / "models/a.gguf").unlink()
    (project.path / "data/text.txt").unlink()
    for allow in ((), ("model.A", "suite.text")):
        ran = project.run(allow=allow)
        assert (ran.state, ran.findings) == (
            "absent",
            (
                Finding(
                    rule="model-files",
                    where="model.A.file.a.gguf",
                    expected="present",
                    found="missing",
                    effect="output",
                    why="no file of this name was found",
                ),
                Finding(
                    rule="suite-files",
                    where="suite.text.file.text",
                    expected="present",
                    found="missing",
                    effect="output",
                    why="no file called `text.txt` was found",
                ),
            ),
        )


@pytest.mark.parametrize("name", fields_of(Device, "name", "kind", "gpu"))
def test_every_fact_of_the_device_that_differs_is_named(project: Project, name: str) -> None:
    project.change_world(
        host=FixedHost(msgspec.structs.replace(CPU, **{name: other_than(getattr(CPU, name))}))
    )
    ran = project.run()
    assert wheres(ran) == [("device", f"{DEVICE}.{name}")]
    refusing = effects_of(Device)[name] == "output"
    assert ran.state == ("refused" if refusing else "sealed")
