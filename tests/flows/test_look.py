from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from qlock.core.compare import compare
from qlock.core.effects import effects_of
from qlock.core.facts import Device
from qlock.core.verify import Finding
from qlock.errors import AbsentError
from tests.broken.make_gguf import I32, STRING, U16, gguf, kv, tensor
from tests.fakes.comparisons import a_plain_lock, a_side
from tests.fakes.documents import an_engine
from tests.fakes.project import Project, fields_of, is_whole, items_jsonl, other_than, tiny_gguf, wheres
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
    assert [
        (finding.rule, place, finding.effect) for finding in ran.findings for place in finding.places
    ] == [
        ("model-files", "model.A.file.a.gguf.sha256", "output"),
        ("model-files", "model.A.file.a.gguf.blake3", "output"),
        ("suite-files", "suite.digits.file.items.size_bytes", "output"),
        ("suite-files", "suite.digits.file.items.sha256", "output"),
        ("suite-files", "suite.digits.file.items.blake3", "output"),
        ("device", f"{DEVICE}.cpu_model", "output"),
        ("device", f"{DEVICE}.cores", "timing"),
    ]
    assert len(ran.findings) == 4
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


def test_a_file_that_cannot_be_read_is_missing_with_the_reason(project: Project) -> None:
    for name in ("models/a.gguf", "data/text.txt"):
        (project.path / name).unlink()
    os.mkfifo(project.path / "models/a.gguf")
    (project.path / "data/text.txt").mkdir()
    ran = project.run()
    assert (ran.state, [(finding.where, finding.found, finding.why) for finding in ran.findings]) == (
        "absent",
        [
            (
                "model.A.file.a.gguf",
                "missing",
                f"file `{project.path}/models/a.gguf` is a FIFO, expected a regular file",
            ),
            (
                "suite.text.file.text",
                "missing",
                f"text `{project.path}/data/text.txt` is a folder, expected a regular file",
            ),
        ],
    )


@pytest.mark.parametrize(
    "data, why",
    [
        (tiny_gguf(1, template="other"), "template differs; tensors, tokenizer, metadata identical"),
        (tiny_gguf(1, block_count=2), "metadata differs; tensors, tokenizer, template identical"),
        (tiny_gguf(1)[:-100], "the tensor data are cut: expected `576` bytes, have `476`"),
        (b"version https://git-lfs.github.com/spec/v1\n", "the file is a git-LFS pointer, not the weights"),
    ],
)
def test_what_became_of_a_model_is_said(project: Project, data: bytes, why: str) -> None:
    project.write("models/a.gguf", data)
    ran = project.run()
    assert ran.state == "refused"
    (finding,) = ran.findings
    assert {part.name for part in finding.parts} >= {"sha256", "blake3"}
    assert finding.why == why


def test_a_shard_with_other_bytes_is_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    keys = [kv("split.no", U16, 0), kv("split.count", U16, 2), kv("split.tensors.count", I32, 2)]
    first = gguf([kv("general.architecture", STRING, "llama"), *keys], [tensor("t1", (32,))], bytes(128))

    def second(fill: int) -> bytes:
        own = [kv("split.no", U16, 1), *keys[1:]]
        return gguf(own, [tensor("t2", (32,))], bytes([fill]) * 128)

    project.write("models/m-00001-of-00002.gguf", first)
    project.write("models/m-00002-of-00002.gguf", second(1))
    project.models = {"S": "file:models/m-00001-of-00002.gguf"}
    project.write_spec()
    project.lock()
    project.write("models/m-00002-of-00002.gguf", second(2))
    (finding,) = project.run().findings
    assert (finding.places, finding.why) == (
        tuple(f"model.S.file.m-00002-of-00002.gguf.{name}" for name in ("sha256", "blake3")),
        "a shard has other bytes",
    )


class NoHost(FixedHost):
    """A machine that does not say what it is."""

    def device(self, name: str = "") -> Device:
        raise AbsentError("`/proc/cpuinfo` is not there")


def test_a_device_that_cannot_be_seen_is_a_finding(project: Project) -> None:
    project.change_world(host=NoHost())
    ran = project.run()
    (finding,) = ran.findings
    assert (ran.state, finding.where, finding.found, finding.why) == (
        "refused",
        DEVICE,
        "missing",
        "`/proc/cpuinfo` is not there",
    )


def test_a_model_that_goes_during_the_run_is_missing_afterwards(project: Project) -> None:
    def remove(_: str) -> None:
        (project.path / "models/a.gguf").unlink(missing_ok=True)

    project.script.before_item = remove
    ran = project.run()
    (finding,) = ran.findings
    assert (ran.state, is_whole(ran)) == ("refused", False)
    assert (finding.rule, finding.where, finding.found) == ("after-the-run", "model.A.file.a.gguf", "missing")


def test_digests_out_of_the_cache_are_counted_and_rehash_reads_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a file younger than two seconds is never taken from the cache.
    monkeypatch.setattr("qlock.world.digests._SETTLED_NS", 0)
    counts = [project.run(repeat_lock=True, rehash=rehash).cached_digests for rehash in (True, False, True)]
    assert counts == [0, 2, 0]


def test_variables_that_the_spec_names_are_in_the_lock_and_reach_every_engine(tmp_path: Path) -> None:
    project = Project(tmp_path)
    table = '\n[engine.environment]\nGGML_X = "{}"\n'.format
    project.write_spec(lambda text: text + table(1))
    project.change_world(environment={"GGML_X": "outside", "GGML_Y": "outside"})
    lock = project.lock()
    assert lock.lock.engine[0].environment == {"GGML_X": "1"}
    assert '\n[engine.environment]\nGGML_X = "1"\n' in lock.path.read_text()
    assert project.run().state == "sealed"
    assert project.script.variables == [{"GGML_X": "1"}] * project.script.opened

    def at_2(text: str) -> str:
        return text + table(2)

    proved = len(project.script.probes)
    project.write_spec(at_2)
    other = project.resolve(upgrade=("all",))
    assert other.lock.engine[0].environment == {"GGML_X": "2"}
    assert len(project.script.probes) == 2 * proved
    assert project.script.variables[-1] == {"GGML_X": "2"}


def test_engines_with_other_variables_are_not_compared(tmp_path: Path) -> None:
    plain = an_engine()
    sides = [
        a_side("rrw", lock=a_plain_lock(engine=(plain,))),
        a_side(
            "rww",
            lock=a_plain_lock(engine=(msgspec.structs.replace(plain, environment={"GGML_X": "1"}),)),
            model="Q4_K_M",
        ),
    ]
    comparison = compare(*sides)
    assert comparison.state == "invalid"
    assert comparison.why[0] == "fatal: engine.environment.GGML_X: A has `missing`, B has `1`"
