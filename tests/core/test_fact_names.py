"""Names of facts: whatever a finding names can be allowed, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from qlock.core.base import Base
from qlock.core.canaries import CANARIES
from qlock.core.effects import leaves
from qlock.core.fact_names import fact_names, is_fact
from qlock.core.lock import Lock
from qlock.core.verify import differences, entries, read_back_findings
from tests.fakes.changes import changed
from tests.fakes.documents import (
    a_gpu_device,
    a_lock,
    a_read_back,
    a_setting,
    an_engine_file,
)


@pytest.fixture(scope="module")
def lock() -> Lock:
    return replace(a_lock(), device=(a_gpu_device(),))


def found(where: str, value: Base) -> Iterator[str]:
    """What every change of one leaf is called."""
    for leaf in leaves(value):
        for finding in differences("device", where, value, changed(value, leaf.path)):
            yield finding.where


def test_every_change_of_what_is_verified_can_be_named(lock: Lock) -> None:
    names: set[str] = set()
    for model in lock.model:
        for file in model.file:
            names |= set(found(f"model.{model.name}.file.{file.name}", file))
    for suite in lock.suite:
        for data in suite.file:
            names |= set(found(f"suite.{suite.name}.file.{data.key}", data))
    for device in lock.device:
        names |= set(found(f"device.{device.name}", device))
    for engine in lock.engine:
        names |= set(found(f"engine.{engine.name}", engine))
    for point in lock.point:
        where = f"point.{point.name}"
        assert point.read_back is not UNSET
        names |= set(found(f"{where}.read_back", point.read_back))
        for prompts in point.prompts or ():
            names |= set(found(f"{where}.prompts.{prompts.suite}", prompts))
        for canary in point.canary or ():
            names |= set(found(f"{where}.canary.{canary.name}", canary))
        names.add(f"{where}.plain_text_nats")
        for leaf in leaves(a_read_back()):
            seen = changed(a_read_back(), leaf.path)
            names |= {one.where for one in read_back_findings(where, a_setting(), seen)}
    assert [name for name in sorted(names) if not is_fact(lock, name)] == []
    assert len(names) > 100


def test_so_can_what_is_not_there_or_not_locked(lock: Lock) -> None:
    engine, device, point, model, suite = (
        lock.engine[0],
        lock.device[0],
        lock.point[0],
        lock.model[0],
        lock.suite[0],
    )
    extra = entries("engine-files", f"engine.{engine.name}.file", engine.file, (*engine.file, an_engine_file(name="libnew.so.1")))  # fmt: skip
    more = differences("device", f"device.{device.name}", device, replace(device, gpu=(*device.gpu, device.gpu[0])))  # fmt: skip
    names = [
        *(one.where for one in (*extra, *more)),
        f"engine.{engine.name}.file",
        f"engine.{engine.name}.file.{engine.file[0].name}.touched",
        f"device.{device.name}",
        f"model.{model.name}.file.{model.file[0].name}",
        f"model.{model.name}.file.{model.file[0].name}.touched",
        f"model.{model.name}.recipe.{model.recipe[0].type}",
        f"suite.{suite.name}.file.{suite.file[0].key}",
        f"point.{point.name}.cards",
        f"point.{point.name}.told",
        f"point.{point.name}.told.sampling.temperature",
        f"point.{point.name}.read_back.weights_buffer.CUDA0",
        f"point.{point.name}.canary.{next(iter(CANARIES))}",
    ]
    assert [name for name in names if not is_fact(lock, name)] == []
    assert len(names) == 14


def test_a_file_that_a_suite_keeps_of_its_reference_can_be_named(lock: Lock) -> None:
    suite = lock.suite[0]
    kept = f"suite.{suite.name}.reference.kept"
    assert not is_fact(lock, kept)
    held = replace(lock, suite=(replace(suite, reference="F16@f16kv"), *lock.suite[1:]))
    for name in ("", ".blake3", ".touched", ".text", ".setting.slots"):
        assert is_fact(held, f"{kept}{name}")
    assert not is_fact(held, f"{kept}.txt")


def test_what_is_unset_in_the_lock_can_be_named(lock: Lock) -> None:
    point = replace(lock.point[0], plain_text_nats=UNSET, canary=UNSET, read_back=UNSET)
    bare = replace(lock, point=(point,))
    for name in ("plain_text_nats", "canary", "read_back", "slots"):
        assert is_fact(bare, f"point.{point.name}.{name}")


def test_the_beginning_of_a_name_up_to_a_dot_is_one(lock: Lock) -> None:
    for name in fact_names(lock):
        while "." in name:
            name = name.rpartition(".")[0]  # noqa: PLW2901 - shorter and shorter
            assert is_fact(lock, name)
    assert {"model", "suite", "device", "engine", "point"} < fact_names(lock)


def test_nothing_else_is_one(lock: Lock) -> None:
    """But for libraries and memory, of which there can be more than are locked, whatever they are called."""
    for name in sorted(fact_names(lock)):
        assert not is_fact(lock, f"x{name}")
        if not re.match(r"engine\.[^.]+\.file\.|point\.[^.]+\.read_back\.\w+_buffer\.", name):
            assert not is_fact(lock, f"{name}x")
    engine = lock.engine[0]
    assert is_fact(lock, f"engine.{engine.name}.file.{engine.file[0].name}x")
    assert not is_fact(lock, f"engine.{engine.name}.file.{engine.file[0].name}.x")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "model.",
        "model.NAME",
        "setting",
        "gate",
        "lock_version",
        "model.{model}.tokenizer_digest",
        "engine.{engine}.file.{file}.blake33",
        "device.{device}.gpu.0.gpu_nam",
        "suite.{suite}.file.x",
        "point.{point}.canary.long-prompt.logits",
        "point.{point}.canary.another",
        "point.{point}.flash",
        "device.{device}.gpu.x",
        "device.{device}.gpu.",
        "device.{device}.gpu.\u0661",
        "device.another.gpu.1",
        "123",
        "\u0661",
        "engine.{engine}.file.",
    ],
)
def test_no_facts(lock: Lock, name: str) -> None:
    names = {
        "model": lock.model[0].name,
        "engine": lock.engine[0].name,
        "file": lock.engine[0].file[0].name,
        "device": lock.device[0].name,
        "suite": lock.suite[0].name,
        "point": lock.point[0].name,
    }
    assert not is_fact(lock, name.format(**names))
