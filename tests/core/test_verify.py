"""Verification: one change, one finding, named by its leaf and as strong as the leaf; nothing changed, nothing found."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core import verify
from qlock.core.base import Base
from qlock.core.effects import Effect, Leaf, keyed, leaves
from qlock.core.facts import Buffer
from qlock.core.lock import SuiteFile
from qlock.core.verify import (
    Finding,
    Part,
    Rule,
    differences,
    entries,
    missing,
    read_back_findings,
    refuses,
    shown,
)
from tests.fakes.changes import changed
from tests.fakes.documents import (
    a_device,
    a_gpu_device,
    a_lock,
    a_model,
    a_point,
    a_read_back,
    a_setting,
    a_suite,
    an_engine,
    an_engine_file,
)
from tests.strategies import strategy


def buffers(names: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(place=name, use="model", size_bytes=1_572_864) for name in names.split())


ON_CPU, ON_CARD = buffers("CPU"), buffers("CUDA0")
RULES: tuple[Rule, ...] = get_args(Rule)
RICH: list[Base] = [
    an_engine(),
    a_device(),
    a_gpu_device(),
    a_model(),
    a_setting(),
    a_suite(),
    a_point(),
    a_read_back(),
]


LEAVES = [
    pytest.param(struct, leaf, id=f"{type(struct).__name__}-{leaf.path}")
    for struct in RICH
    for leaf in leaves(struct)
]


@pytest.mark.parametrize("struct", RICH, ids=lambda struct: type(struct).__name__)
def test_nothing_changed_nothing_found(struct: Base) -> None:
    assert differences("device", "x", struct, struct) == []
    assert entries("device", "x", [struct], [struct]) == []


@pytest.mark.parametrize("struct, leaf", LEAVES)
def test_one_change_one_finding(struct: Base, leaf: Leaf) -> None:
    found = differences("device", "x", struct, changed(struct, leaf.path))
    sides = [(one.expected, one.found) for one in found]
    if sides == [("present", "absent"), ("absent", "present")]:
        # An entry that is called otherwise is another entry: the old one is gone, a new one is there.
        assert leaf.path.rpartition(".")[2] in ("name", "key", "place", "suite", "type", "variation")
        assert {one.effect for one in found} == {leaf.effect}
        return
    new_key = leaf.value == {}
    assert [(one.rule, one.where, one.effect) for one in found] == [
        ("device", f"x.{leaf.path}.x" if new_key else f"x.{leaf.path}", leaf.effect)
    ]
    assert found[0].expected == ("missing" if new_key else shown(leaf.value))
    assert found[0].found != found[0].expected


def test_every_pin_of_a_lock_was_changed_above() -> None:
    lock = a_lock()
    tables = {name for name in lock.__struct_fields__ if isinstance(getattr(lock, name), tuple)}
    kinds = {type(entry) for name in tables - {"anchor", "gate", "missing"} for entry in getattr(lock, name)}
    assert kinds <= {type(struct) for struct in RICH}


@pytest.mark.parametrize("struct", RICH, ids=lambda struct: type(struct).__name__)
def test_what_could_not_be_seen_is_one_finding_each(struct: Base) -> None:
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if not (value and isinstance(value, tuple) and isinstance(value[0], Base)):
            continue
        for index, key in enumerate(keyed(value)):
            fewer = msgspec.structs.replace(struct, **{field: (*value[:index], *value[index + 1 :])})
            lost = differences("device", "x", struct, fewer)
            new = differences("device", "x", fewer, struct)
            if len(set(value)) < len(value):
                continue
            assert [(one.where, one.expected, one.found) for one in lost] == [
                (f"x.{field}.{key}", "present", "absent")
            ]
            assert [(one.where, one.expected, one.found) for one in new] == [
                (f"x.{field}.{key}", "absent", "present")
            ]


FILES: list[Base] = [a_model().file[0], a_suite().file[0], an_engine_file()]


@given(st.data())
@pytest.mark.parametrize("file", FILES, ids=lambda file: type(file).__name__)
def test_one_changed_file_is_one_finding_that_names_every_leaf(file: Base, data: st.DataObject) -> None:
    names = [leaf.path for leaf in leaves(file) if leaf.path not in ("name", "key")]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    other = file
    for name in chosen:
        other = changed(other, name)
    found = differences("model-files", "x.file.a.b", file, other)
    told = {place: one.effect for one in found for place in one.places}
    assert told == {f"x.file.a.b.{leaf.path}": leaf.effect for leaf in leaves(file) if leaf.path in chosen}
    assert len({one.effect for one in found}) == len(found)
    for one in found:
        assert (one.where == "x.file.a.b") == (len(one.places) > 1) == bool(one.change)


def test_what_of_a_file_changed_is_told_in_a_line() -> None:
    file = a_model().file[0]
    other = msgspec.structs.replace(
        file, size_bytes=file.size_bytes + 1, sha256=f"sha256:{'1' * 64}", blake3=UNSET
    )
    (found,) = differences("model-files", "model.Q4.file.q4.gguf", file, other)
    assert found.where == "model.Q4.file.q4.gguf"
    assert found.parts == (
        Part(name="size_bytes", expected=str(file.size_bytes), found=str(file.size_bytes + 1)),
        Part(name="sha256", expected=file.sha256, found=f"sha256:{'1' * 64}"),
        Part(name="blake3", expected=str(file.blake3), found="missing"),
    )
    assert found.change == (
        f"size_bytes {file.size_bytes} → {file.size_bytes + 1}, sha256 {file.sha256[7:19]}… → 111111111111…, "
        f"blake3 {str(file.blake3)[7:19]}… → missing"
    )
    assert found.expected == f"size_bytes {file.size_bytes}, sha256 {file.sha256}, blake3 {file.blake3}"
    assert found.found == f"size_bytes {file.size_bytes + 1}, sha256 sha256:{'1' * 64}, blake3 missing"


def test_two_changed_files_are_two_findings() -> None:
    a, b = (an_engine_file(name=name) for name in ("a", "b"))
    others = [msgspec.structs.replace(file, size_bytes=1, role="math") for file in (a, b)]
    found = entries("engine-files", "engine.e.file", [a, b], others)
    assert [one.places for one in found] == [
        (f"engine.e.file.{name}.role", f"engine.e.file.{name}.size_bytes") for name in ("a", "b")
    ]


def finding(where: str, expected: str, found: str, effect: Effect = "output", why: str = "") -> Finding:
    return Finding(rule="device", where=where, expected=expected, found=found, effect=effect, why=why)


@pytest.mark.parametrize(
    "locked, found, expected",
    [
        (a_device(cores=4), a_device(), [finding("d.cores", "4", "2", "timing")]),
        (
            a_gpu_device(),
            a_gpu_device(gpu=a_gpu_device().gpu[:1]),
            [finding("d.gpu.1", "present", "absent")],
        ),
        (a_device(gpu=()), a_device(gpu=a_gpu_device().gpu[:1]), [finding("d.gpu.0", "absent", "present")]),
        (
            a_device(instruction_sets=("avx", "fma")),
            a_device(instruction_sets=("avx2", "fma", "avx2")),
            [
                finding(
                    "d.instruction_sets",
                    "avx, fma",
                    "avx2, fma, avx2",
                    why="only locked: avx; only found: avx2, avx2",
                )
            ],
        ),
        (
            a_device(instruction_sets=("avx", "fma")),
            a_device(instruction_sets=("fma", "avx")),
            [
                finding(
                    "d.instruction_sets",
                    "avx, fma",
                    "fma, avx",
                    why="the same values in another order or number",
                )
            ],
        ),
        (
            a_point(read_back=UNSET),
            a_point(),
            [finding("d.read_back", "absent", "present")],
        ),
        (a_point(), a_point(canary=UNSET), [finding("d.canary.long-prompt", "present", "absent")]),
        (a_point(canary=()), a_point(canary=UNSET), [finding("d.canary", "", "missing")]),
        (a_point(plain_text_nats=UNSET), a_point(), [finding("d.plain_text_nats", "missing", "3.25")]),
        (
            a_model(sampling={"temp": {"a": 1}}),
            a_model(sampling={"temp": True}),
            [finding("d.sampling.temp", '{"a":1}', "true")],
        ),
    ],
)
def test_findings(locked: Base, found: Base, expected: list[Finding]) -> None:
    assert differences("device", "d", locked, found) == expected


def test_files_of_the_system_are_noted() -> None:
    libc = an_engine_file(name="libc.so.6", role="system")
    newer = msgspec.structs.replace(libc, size_bytes=7)
    found = entries("engine-files", "engine.e.file", [libc], [newer])
    assert [(one.where, one.effect, refuses(one)) for one in found] == [
        ("engine.e.file.libc.so.6.size_bytes", "note", False)
    ]
    assert [one.effect for one in entries("engine-files", "f", [], [libc])] == ["note"]


def test_two_tables() -> None:
    lost, same, new = (an_engine_file(name=name) for name in ("lost", "same", "new"))
    other_size = msgspec.structs.replace(same, size_bytes=1)
    found = entries("engine-files", "engine.e.file", [lost, same], [other_size, new], effect="timing")
    assert [(one.where, one.expected, one.found, one.effect) for one in found] == [
        ("engine.e.file.lost", "present", "absent", "timing"),
        ("engine.e.file.same.size_bytes", "1234567", "1", "timing"),
        ("engine.e.file.new", "absent", "present", "timing"),
    ]


def test_what_could_not_be_seen_refuses() -> None:
    gone = missing("model-files", "model.Q4.file.q4.gguf", "blake3:00", "no such file")
    assert gone == Finding(
        rule="model-files",
        where="model.Q4.file.q4.gguf",
        expected="blake3:00",
        found="missing",
        effect="output",
        why="no such file",
    )
    assert refuses(gone)
    assert not refuses(msgspec.structs.replace(gone, effect="timing"))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_remedy_and_stands_in_the_list(rule: Rule) -> None:
    found = Finding(rule=rule, where="x", expected="1", found="2", effect="output")
    assert found.remedy
    assert not found.remedy.endswith(".")


def test_the_list_of_rules_has_every_rule() -> None:
    numbers = [line[:2] for line in (verify.__doc__ or "").splitlines() if line[:1].isdigit()]
    assert numbers == [f"{number}." for number in range(1, len(RULES) + 1)]


@pytest.mark.parametrize(
    "value, text",
    [(True, "true"), (False, "false"), (1.5, "1.5"), ((), ""), ((1, 2), "1, 2"), ("a\x1b[2J", "a\\x1b[2J")],
)
def test_values_for_people(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_long_value_is_shown_short() -> None:
    assert len(shown("x" * 10**6)) == 200
    assert len(shown(tuple(range(10**5)))) == 200
    assert len(shown({"a": "x" * 10**5})) == 200


# ---------------------------------------------------------------- rule 5: reading back


def test_an_engine_that_did_as_told() -> None:
    assert read_back_findings("point.p", a_setting(), a_read_back()) == []


def test_every_choice_that_is_read_back_is_held_against_the_setting() -> None:
    told = set(a_setting().__struct_fields__) & set(a_read_back().__struct_fields__)
    for name in sorted(told):
        found = read_back_findings("point.p", a_setting(), changed(a_read_back(), name))
        assert [(one.rule, one.where, one.expected, one.effect) for one in found] == [
            ("read-back", f"point.p.{name}", shown(getattr(a_setting(), name)), "output")
        ]


@pytest.mark.parametrize(
    "asked, offloaded, findings", [(99, 31, 0), (99, 30, 1), (10, 10, 0), (0, 1, 1), (10, 0, 1)]
)
def test_layers_on_the_gpu(asked: int, offloaded: int, findings: int) -> None:
    memory = ON_CARD if offloaded else ON_CPU
    read_back = a_read_back(layers_offloaded=offloaded, weights_buffer=memory, cache_buffer=memory)
    found = read_back_findings("p", a_setting(gpu_layers=asked), read_back)
    assert [one.where for one in found] == ["p.layers_offloaded"] * findings


CPU, CARD, CARD_ALONE = "the CPU's memory alone", "memory of a card", "memory of a card alone"


@pytest.mark.parametrize(
    "setting, weights, cache, findings",
    [
        ({}, "CPU_Mapped CPU_REPACK", "CPU", []),
        ({}, "CPU AMX", "CPU", []),
        ({}, "CPU CUDA0", "CPU", [("weights_buffer", CPU, "CPU, CUDA0")]),
        ({}, "CPU", "Vulkan0", [("cache_buffer", CPU, "Vulkan0")]),
        ({}, "", "", [("weights_buffer", CPU, "none"), ("cache_buffer", CPU, "none")]),
        ({"gpu_layers": 99}, "CPU_Mapped CUDA0 CUDA1", "CUDA0 CUDA1", []),
        ({"gpu_layers": 99}, "CUDA_Host CUDA0", "CUDA0", []),
        (
            {"gpu_layers": 99},
            "CPU_Mapped CUDA_Host",
            "CUDA0",
            [("weights_buffer", CARD, "CPU_Mapped, CUDA_Host")],
        ),
        ({"gpu_layers": 99}, "CUDA0", "CPU", [("cache_buffer", CARD_ALONE, "CPU")]),
        ({"gpu_layers": 99}, "CUDA0", "CPU CUDA0", [("cache_buffer", CARD_ALONE, "CPU, CUDA0")]),
        ({"gpu_layers": 99}, "CUDA0", "", [("cache_buffer", CARD_ALONE, "none")]),
        ({"gpu_layers": 99, "kv_offload": False}, "CUDA0", "CPU", []),
        ({"gpu_layers": 99, "kv_offload": False}, "CUDA0", "CUDA0", [("cache_buffer", CPU, "CUDA0")]),
        ({"gpu_layers": 10}, "CPU ROCm0", "CPU ROCm0", []),
        ({"gpu_layers": 1}, "CPU ROCm0", "CPU", []),
        ({"gpu_layers": 10}, "CPU", "CPU", [("weights_buffer", CARD, "CPU")]),
        ({"gpu_layers": 10}, "ROCm0", "", [("cache_buffer", "any memory", "none")]),
    ],
)
def test_weights_and_cache_lie_where_the_layers_are(
    setting: dict[str, Any], weights: str, cache: str, findings: list[tuple[str, str, str]]
) -> None:
    read_back = a_read_back(
        layers_offloaded=min(setting.get("gpu_layers", 0), 31),
        weights_buffer=buffers(weights),
        cache_buffer=buffers(cache),
    )
    found = read_back_findings("p", a_setting(**setting), read_back)
    assert [(one.where, one.expected, one.found) for one in found] == [
        (f"p.{name}", expected, got) for name, expected, got in findings
    ]


# ---------------------------------------------------------------- laws


@settings(max_examples=30)
@given(st.lists(strategy(SuiteFile), max_size=3), st.lists(strategy(SuiteFile), max_size=3))
def test_findings_mirror_each_other(a: list[SuiteFile], b: list[SuiteFile]) -> None:
    forth = [(one.where, one.expected, one.found, one.effect) for one in entries("suite-files", "f", a, b)]
    back = [(one.where, one.found, one.expected, one.effect) for one in entries("suite-files", "f", b, a)]
    assert sorted(forth) == sorted(back)


@pytest.mark.parametrize("rule", ["model-files", "suite-files"])
def test_a_file_that_is_not_there_is_to_be_named_and_another_one_to_be_asked_for(rule: Rule) -> None:
    absent = missing(rule, "model.A.file.a.gguf", "present", "no file of this name was found")
    assert absent.remedy == "say where it lies with --models DIR (a folder that holds it under its own name)"
    unreadable = missing(rule, "model.A.file.a.gguf", "readable", "a fault of the disk")
    for finding in (unreadable, msgspec.structs.replace(absent, expected="one", found="another")):
        assert finding.remedy == (
            "bring back the locked file, or take the new one with `qlock resolve --upgrade NAME`"
        )
