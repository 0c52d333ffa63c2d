from typing import Any

import msgspec
import pytest

from qlock.core.lock import Lock
from qlock.core.validity import Treatment, covering, differences
from tests.fakes.comparisons import a_plain_lock, a_side, with_first
from tests.fakes.documents import a_digest, a_gpu_device, a_read_back

replace = msgspec.structs.replace
TREATMENTS: tuple[Treatment, ...] = ("weights", "kv", "context", "template", "sampling")


def standings(lock: Lock, *, treatment: Treatment = "weights", other: Lock | None = None) -> dict[str, str]:
    found = differences(a_side(lock=other or a_plain_lock()), a_side(lock=lock), treatment=treatment)
    return {one.path: one.standing for one in found}


def changed(**tables: Any) -> Lock:
    return with_first(a_plain_lock(), **tables)


SAMPLED = replace(a_plain_lock().suite[0].sampling, temperature=0.5)
PROMPTED = replace(a_plain_lock().suite[0].prompt, template="file:x.jinja")
FACTS: list[tuple[str, dict[str, Any], Treatment]] = [
    ("model.tensors_digest", {"model": {"tensors_digest": a_digest("x")}}, "weights"),
    ("setting.cache_type_k", {"setting": {"cache_type_k": "q8_0"}}, "kv"),
    ("setting.context_tokens", {"setting": {"context_tokens": 4096}}, "context"),
    ("model.template_digest", {"model": {"template_digest": a_digest("x")}}, "template"),
    ("suite.wikitext.prompt.template", {"suite": {"prompt": PROMPTED}}, "template"),
    ("suite.wikitext.sampling.temperature", {"suite": {"sampling": SAMPLED}}, "sampling"),
]


@pytest.mark.parametrize("path, tables, meant", FACTS)
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_what_is_meant_to_differ_is_the_treatment_and_anything_else_a_confound(
    path: str, tables: dict[str, Any], meant: Treatment, treatment: Treatment
) -> None:
    expected = "treatment" if treatment == meant else "confound"
    assert standings(changed(**tables), treatment=treatment) == {path: expected}


@pytest.mark.parametrize("tables, meant", [(tables, meant) for _, tables, meant in FACTS])
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_the_treatment_that_covers_what_differs_does_not_depend_on_the_one_that_is_declared(
    tables: dict[str, Any], meant: Treatment, treatment: Treatment
) -> None:
    two = changed(**tables, device={"cores": 64})  # and a note
    assert covering(differences(a_side(), a_side(lock=two), treatment=treatment)) == meant


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"device": {"cores": 64}},
        {"device": {"cpu_model": "Xeon"}},
        {"setting": {"slots": 4}},
        {"setting": {"cache_type_k": "q8_0", "context_tokens": 4096}},
        {"setting": {"cache_type_k": "q8_0"}, "engine": {"kind": "llama.cpp"}},
    ],
)
def test_no_treatment_covers_nothing_or_more_than_one_thing(tables: dict[str, Any]) -> None:
    assert covering(differences(a_side(), a_side(lock=changed(**tables)), treatment="kv")) is None


CONFOUNDS: list[tuple[str, dict[str, Any]]] = [
    ("model.tokenizer_digest", {"model": {"tokenizer_digest": a_digest("x")}}),
    ("model.sampling.temp", {"model": {"sampling": {"temp": 0.9, "top_k": 20}}}),
    ("setting.slots", {"setting": {"slots": 4}}),
    ("setting.threads", {"setting": {"threads": 4}}),
    ("setting.gpu_layers", {"setting": {"gpu_layers": 4}}),
    ("setting.flash_attention", {"setting": {"flash_attention": True}}),
    ("suite.wikitext.ask_version", {"suite": {"ask_version": 2}}),
    ("suite.wikitext.grade_version", {"suite": {"grade_version": 2}}),
    ("suite.wikitext.params.text", {"suite": {"params": {"text": "x", "window_tokens": 512}}}),
]


@pytest.mark.parametrize("path, tables", CONFOUNDS)
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_no_treatment_covers_these(path: str, tables: dict[str, Any], treatment: Treatment) -> None:
    assert standings(changed(**tables), treatment=treatment) == {path: "confound"}


FATAL: list[tuple[str, dict[str, Any]]] = [
    ("device.cpu_model", {"device": {"cpu_model": "Xeon"}}),
    ("device.instruction_sets", {"device": {"instruction_sets": ("avx2",)}}),
    ("device.driver_version", {"device": {"driver_version": "560.1"}}),
    ("engine.kind", {"engine": {"kind": "llama.cpp"}}),
    ("engine.system_info", {"engine": {"system_info": "AVX2 = 1"}}),
]


@pytest.mark.parametrize("path, tables", FATAL)
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_another_cpu_or_engine_is_fatal_whatever_is_declared(
    path: str, tables: dict[str, Any], treatment: Treatment
) -> None:
    assert standings(changed(**tables), treatment=treatment) == {path: "fatal"}


def test_another_card_is_fatal() -> None:
    l4 = a_gpu_device()
    h200 = replace(l4.gpu[0], gpu_name="NVIDIA H200")
    one = changed(device={"gpu": l4.gpu})
    other = changed(device={"gpu": (h200, l4.gpu[1])})
    assert standings(one, other=other) == {"device.gpu.0.gpu_name": "fatal"}


def test_another_library_is_fatal_and_another_system_file_a_note() -> None:
    files = a_plain_lock().engine[0].file
    other = tuple(replace(file, blake3=a_digest("x")) for file in files)
    assert standings(changed(engine={"file": other})) == {
        "engine.file.libggml-cpu.so": "fatal",
        "engine.file.libgomp.so.1": "fatal",
        "engine.file.libc.so.6": "note",
    }


def test_a_forced_fact_is_fatal() -> None:
    found = differences(a_side(), a_side(forced=("device.cores",)), treatment="weights")
    assert [(one.path, one.standing, one.why) for one in found] == [
        ("forced.device.cores", "fatal", "the run went on although this fact was not as locked")
    ]


def test_speed_and_labels_are_notes() -> None:
    lock = changed(device={"cores": 64}, engine={"label": "b7000"}, model={"warnings": ()})
    assert standings(lock) == {"engine.label": "note", "device.cores": "note", "model.warnings": "note"}


@pytest.mark.parametrize(
    "tables",
    [{"model": {"tensors_digest": a_digest("x")}}, {"setting": {"cache_type_k": "q8_0"}}],
    ids=["weights", "kv"],
)
def test_canaries_follow_from_another_model_or_setting(tables: dict[str, Any]) -> None:
    lock = with_first(changed(**tables), point={"canary": (), "plain_text_nats": 9.5})
    found = differences(a_side(lock=a_plain_lock()), a_side(lock=lock), treatment="weights")
    assert [(one.path, one.standing, one.why) for one in found[1:]] == [
        ("point.plain_text_nats", "note", "follows from the other differences"),
        ("point.canary", "note", "follows from the other differences"),
    ]


def test_canaries_that_nothing_explains_are_fatal() -> None:
    lock = changed(point={"canary": ()}, suite={"sampling": SAMPLED})
    found = differences(a_side(lock=a_plain_lock()), a_side(lock=lock), treatment="sampling")
    assert [(one.path, one.standing, one.why) for one in found] == [
        ("suite.wikitext.sampling.temperature", "treatment", ""),
        ("point.canary", "fatal", "the same pins, and yet it computed otherwise"),
    ]


def test_what_the_engine_reads_back_stands_as_its_setting_does() -> None:
    lock = changed(setting={"cache_type_k": "q8_0"}, point={"read_back": a_read_back(cache_type_k="q8_0")})
    assert standings(lock, treatment="kv") == {
        "setting.cache_type_k": "treatment",
        "point.read_back.cache_type_k": "treatment",
    }


def test_two_quants_of_one_run_differ_in_the_treatment_and_what_follows() -> None:
    found = differences(a_side(), a_side(model="Q4_K_M"), treatment="weights")
    assert {one.path: one.standing for one in found} == {
        "model.requested": "note",
        "model.tensors_digest": "treatment",
        "model.metadata_digest": "treatment",
        "model.file.weights": "treatment",
        "point.canary": "note",
    }
