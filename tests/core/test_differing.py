from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.base import Base
from qlock.core.differing import Found, brief, found
from qlock.core.effects import effects_of
from qlock.core.sides import Side
from tests.fakes.comparisons import a_plain_lock, a_side, with_first
from tests.fakes.documents import a_digest, a_gpu_device, a_kld_lock, a_read_back

replace = msgspec.structs.replace


def against(**tables: Any) -> list[Found]:
    """The reference against itself with other first entries in some tables of its lock."""
    return found(a_side(), a_side(lock=with_first(a_plain_lock(), **tables)))


def head(word: str) -> str:
    """How a digest is shown."""
    return f"{a_digest(word)[:19]}…"


def told(**tables: Any) -> list[tuple[str, str, str, str]]:
    return [(one.path, one.topic, one.a, one.b) for one in against(**tables)]


def test_a_side_does_not_differ_from_itself() -> None:
    assert found(a_side(), a_side()) == []


def test_names_are_no_facts() -> None:
    lock = a_plain_lock()
    renamed = replace(
        lock,
        engine=(replace(lock.engine[0], name="other"),),
        setting=(replace(lock.setting[0], name="other"),),
        point=(replace(lock.point[0], name="F16@other", setting="other", engine="other"), lock.point[1]),
        suite=tuple(replace(suite, points=("F16@other",)) for suite in lock.suite),
    )
    assert found(a_side(), a_side(lock=renamed, point="F16@other")) == []


def test_a_replaced_library_is_one_line() -> None:
    lock = a_plain_lock()
    changed = replace(lock.engine[0].file[0], blake3=a_digest("x"), sha256=a_digest("y"), size_bytes=1)
    files = (changed, *lock.engine[0].file[1:])
    assert told(engine={"file": files}) == [
        ("engine.file.libggml-cpu.so", "engine", head("libggml-cpu.so"), head("x")),
    ]


@pytest.mark.parametrize(
    "code, why",
    [("code of libggml-cpu", "rebuilt: its code is the same bytes"), ("other", "other code"), (None, "")],
)
def test_a_replaced_library_says_whether_its_code_is_the_same(code: str | None, why: str) -> None:
    lock = a_plain_lock()
    digest = UNSET if code is None else a_digest(code)
    changed = replace(lock.engine[0].file[0], blake3=a_digest("x"), code_digest=digest)
    (one,) = against(engine={"file": (changed, *lock.engine[0].file[1:])})
    assert one.why == why


def test_files_of_the_system_are_a_label_and_those_of_mathematics_are_not() -> None:
    files = a_plain_lock().engine[0].file
    assert told(engine={"file": files[:1]}) == [
        ("engine.file.libgomp.so.1", "engine", head("libgomp.so.1"), "absent"),
        ("engine.file.libc.so.6", "label", head("libc.so.6"), "absent"),
    ]


@pytest.mark.parametrize(
    "table, field, value, path, topic",
    [
        ("engine", "kind", "llama.cpp", "engine.kind", "engine"),
        ("engine", "system_info", "AVX2 = 1", "engine.system_info", "engine"),
        ("engine", "label", "b7000", "engine.label", "label"),
        ("device", "cpu_model", "Xeon", "device.cpu_model", "device"),
        ("device", "driver_version", "550.1", "device.driver_version", "device"),
        ("device", "instruction_sets", ("avx2",), "device.instruction_sets", "device"),
        ("device", "cores", 64, "device.cores", "timing"),
        ("device", "cpu_stepping", 9, "device.cpu_stepping", "label"),
        ("setting", "context_tokens", 4096, "setting.context_tokens", "context"),
        ("setting", "cache_type_k", "q8_0", "setting.cache_type_k", "kv"),
        ("setting", "cache_type_v", "q8_0", "setting.cache_type_v", "kv"),
        ("setting", "slots", 4, "setting.slots", "schedule"),
        ("setting", "threads", 4, "setting.threads", "schedule"),
        ("setting", "flash_attention", True, "setting.flash_attention", "schedule"),
        ("setting", "mmap", False, "setting.mmap", "timing"),
        ("model", "tensors_digest", a_digest("x"), "model.tensors_digest", "weights"),
        ("model", "metadata_digest", a_digest("x"), "model.metadata_digest", "weights"),
        ("model", "bits_per_weight", 2.5, "model.bits_per_weight", "weights"),
        ("model", "tokenizer_digest", a_digest("x"), "model.tokenizer_digest", "tokenizer"),
        ("model", "template_digest", a_digest("x"), "model.template_digest", "template"),
        ("model", "sampling", {"temp": 0.9, "top_k": 20}, "model.sampling.temp", "sampling-keys"),
        ("model", "imatrix", {"chunks": 7, "dataset": "x"}, "model.imatrix", "label"),
        ("model", "warnings", (), "model.warnings", "label"),
        ("point", "repeatable", "no", "point.repeatable", "label"),
        ("point", "plain_text_nats", 9.5, "point.plain_text_nats", "behaviour"),
        ("point", "canary", (), "point.canary", "behaviour"),
    ],
)
def test_each_fact_has_its_topic(table: str, field: str, value: object, path: str, topic: str) -> None:
    assert [(one.path, one.topic) for one in against(**{table: {field: value}})] == [(path, topic)]


@pytest.mark.parametrize(
    "field, value, path, topic",
    [
        ("kind", "choice", "suite.wikitext.kind", "suite"),
        ("ask_version", 2, "suite.wikitext.ask_version", "suite"),
        ("grade_version", 2, "suite.wikitext.grade_version", "grader"),
        ("repeats", 3, "suite.wikitext.repeats", "label"),
        ("items_limit", 3, "suite.wikitext.items_limit", "label"),
        (
            "params",
            {"text": "file:data/wiki.txt", "window_tokens": 9},
            "suite.wikitext.params.window_tokens",
            "suite",
        ),
    ],
)
def test_each_part_of_a_suite_has_its_topic(field: str, value: object, path: str, topic: str) -> None:
    assert [(one.path, one.topic) for one in against(suite={field: value})] == [(path, topic)]


def test_sampling_and_the_prompt_are_told_apart() -> None:
    suite = a_plain_lock().suite[0]
    sampling = replace(suite.sampling, temperature=0.5)
    prompt = replace(suite.prompt, template="file:x.jinja", thinking="on")
    assert [(one.path, one.topic) for one in against(suite={"sampling": sampling, "prompt": prompt})] == [
        ("suite.wikitext.sampling.temperature", "sampling"),
        ("suite.wikitext.prompt.template", "template"),
        ("suite.wikitext.prompt.thinking", "prompts"),
    ]


def test_the_data_of_a_suite_are_its_items() -> None:
    file = a_plain_lock().suite[0].file[0]
    assert told(suite={"file": (replace(file, name="moved.txt", blake3=a_digest("x")),)}) == [
        ("suite.wikitext.file.items", "items", head("wikitext"), head("x"))
    ]
    assert told(suite={"file": (replace(file, name="moved.txt"),)}) == []


def test_a_suite_on_one_side_only_is_not_looked_at() -> None:
    lock = a_plain_lock()
    assert found(a_side(), a_side(lock=replace(lock, suite=lock.suite[1:]))) == []


def test_what_the_engine_reads_back_follows_its_setting_its_model_or_its_tokenizer() -> None:
    read_back = a_read_back(context_tokens=4096, cache_type_k="q8_0", slots=4, layers=99, bos_token=7)
    assert [(one.path, one.topic) for one in against(point={"read_back": read_back})] == [
        ("point.read_back.context_tokens", "context"),
        ("point.read_back.slots", "schedule"),
        ("point.read_back.cache_type_k", "kv"),
        ("point.read_back.layers", "weights"),
        ("point.read_back.bos_token", "tokenizer"),
    ]


def test_what_was_asked_is_compared_suite_by_suite() -> None:
    text, exam = a_plain_lock().point[0].prompts or ()
    changed = replace(text, items=39, items_digest=a_digest("x"), text_digest=a_digest("y"))
    assert [(one.path, one.topic) for one in against(point={"prompts": (changed, exam)})] == [
        ("point.prompts.wikitext.items", "items"),
        ("point.prompts.wikitext.items_digest", "items"),
        ("point.prompts.wikitext.text_digest", "prompts"),
    ]
    assert told(point={"prompts": (exam,)}) == [("point.prompts.wikitext", "prompts", "present", "missing")]


def test_files_of_one_model_differ_in_weights_unless_the_tensors_are_the_same() -> None:
    file = a_plain_lock().model[0].file[0]
    rewritten = replace(file, name="new.gguf", blake3=a_digest("x"))
    (one,) = against(model={"file": (rewritten,)})
    assert (one.path, one.topic, one.why) == ("model.file.weights", "label", "the tensors are the same")
    paths = [
        (one.path, one.topic)
        for one in against(model={"file": (rewritten,), "tensors_digest": a_digest("t")})
    ]
    assert paths == [("model.tensors_digest", "weights"), ("model.file.weights", "weights")]


@pytest.mark.parametrize(
    "role, topic", [("lora", "weights"), ("mmproj", "rider"), ("draft", "rider"), ("template", "template")]
)
def test_riders_have_topics_of_their_own(role: Any, topic: str) -> None:
    file = a_plain_lock().model[0].file[0]
    (one,) = against(model={"file": (file, replace(file, name="rider.gguf", role=role))})
    assert (one.path, one.topic, one.a) == (f"model.file.{role}", topic, "absent")


def test_the_recipe_is_one_line() -> None:
    recipe = a_plain_lock().model[0].recipe
    assert told(model={"recipe": (recipe[0], replace(recipe[1], type="Q8_0"))}) == [
        ("model.recipe", "weights", "F32, Q4_K", "F32, Q8_0")
    ]


def test_the_day_that_templates_are_told_counts_where_one_asks_for_it() -> None:
    lock = a_plain_lock()
    later = replace(lock, frozen_date="2026-02-02")
    assert [(one.path, one.topic) for one in found(a_side(), a_side(lock=later))] == [
        ("frozen_date", "prompts")
    ]
    dateless = tuple(replace(prompts, uses_date=False) for prompts in lock.point[0].prompts or ())
    locks = [with_first(one, point={"prompts": dateless}) for one in (lock, later)]
    a, b = (a_side(lock=one) for one in locks)
    assert [(one.path, one.topic) for one in found(a, b)] == [("frozen_date", "label")]


def test_graders_of_two_versions_are_told() -> None:
    a, b = a_side("rw"), a_side("rw")
    regraded = replace(b.sittings["orders"][0], grade_version=2)
    (one,) = found(a, replace(b, sittings={"orders": (regraded,)}))
    assert (one.path, one.topic, one.a, one.b) == ("suite.orders.graded_with", "grader", "1", "2")


def test_a_fact_that_neither_side_knows_counts_as_different() -> None:
    files = tuple(replace(file, blake3=UNSET) for file in a_plain_lock().model[0].file)
    model = {"tensors_digest": UNSET, "bits_per_weight": UNSET, "file": files}
    point = {"read_back": UNSET, "prompts": UNSET, "canary": UNSET}
    side = a_side(lock=with_first(a_plain_lock(), model=model, point=point))
    why = "missing facts count as different"
    assert [(one.path, one.topic, one.a, one.b, one.why) for one in found(side, side)] == [
        ("model.file.weights", "weights", "missing", "missing", ""),
        ("point.prompts.orders", "prompts", "missing", "missing", why),
        ("point.prompts.wikitext", "prompts", "missing", "missing", why),
        ("model.tensors_digest", "weights", "missing", "missing", why),
        ("point.canary", "behaviour", "missing", "missing", why),
        ("point.read_back", "schedule", "missing", "missing", why),
    ]


def test_tensors_of_the_same_files_are_the_same() -> None:
    side = a_side(lock=with_first(a_plain_lock(), model={"tensors_digest": UNSET}))
    assert found(side, side) == []


def test_a_fact_that_one_side_does_not_know_is_missing_there() -> None:
    assert told(point={"read_back": UNSET, "plain_text_nats": UNSET}) == [
        ("point.plain_text_nats", "behaviour", "3.25", "missing"),
        ("point.read_back", "schedule", "present", "missing"),
    ]


def test_forced_facts_of_either_side_come_first() -> None:
    side = a_side(forced=("device.cores",))
    (one,) = found(side, a_side())
    assert (one.path, one.topic, one.a, one.b) == ("forced.device.cores", "forced", "forced", "as locked")
    assert found(side, side) == [replace(one, b="forced")]


def test_the_models_own_template_is_a_label_where_every_suite_brings_another() -> None:
    lock = a_plain_lock()
    over = tuple(
        replace(suite, prompt=replace(suite.prompt, template="file:fixed.jinja")) for suite in lock.suite
    )
    mine = replace(lock, suite=over)
    theirs = with_first(mine, model={"template_digest": a_digest("x")})
    (one,) = found(a_side(lock=mine), a_side(lock=theirs))
    assert (one.path, one.topic, one.why) == (
        "model.template_digest",
        "label",
        "every suite brings a template of its own",
    )


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return a_digest(value) if value.startswith(("blake3:", "sha256:")) else f"{value}x"
        case dict():
            return {**value, "another": 1}
        case tuple():
            return value[1:] if value else ("another",)
        case _:
            raise AssertionError(value)


PASSED_OVER = {
    "name",
    "model",
    "setting",
    "engine",
    "device",
    "slots_requested",
    "slots_why",
    "probe",
    "repeatable_why",
}
"""Names that people gave, and how another pin came about."""

TABLES = ("engine", "device", "model", "setting", "point", "suite")
FIELDS = [
    (table, field)
    for table in TABLES
    for field in getattr(a_plain_lock(), table)[0].__struct_fields__
    if field not in PASSED_OVER and (table, field) not in {("suite", "points"), ("device", "gpu")}
]


@pytest.mark.parametrize("table, field", FIELDS)
def test_no_fact_of_the_lock_is_forgotten(table: str, field: str) -> None:
    entry: Base = getattr(a_plain_lock(), table)[0]
    value = getattr(entry, field)
    changed = (
        other(value) if not isinstance(value, msgspec.Struct) else replace(value, **first_changed(value))
    )
    differences = against(**{table: {field: changed}})
    assert differences, f"{table}.{field}"
    strong = effects_of(type(entry))[field] == "output"
    assert strong == any(one.topic not in ("label", "timing") for one in differences) or field in (
        "repeats",
        "repeatable",
        "file",
    )


def test_cards_differ_fact_by_fact() -> None:
    lock = a_plain_lock()
    mine, theirs = a_gpu_device(), a_gpu_device(gpu=())
    assert [
        (one.path, one.topic, one.a, one.b)
        for one in found(
            a_side(lock=with_first(lock, device={"gpu": mine.gpu})),
            a_side(lock=with_first(lock, device={"gpu": theirs.gpu})),
        )
    ] == [("device.gpu.0", "device", "present", "absent"), ("device.gpu.1", "device", "present", "absent")]
    smaller = (replace(mine.gpu[0], memory_bytes=1, power_limit_mw=1), mine.gpu[1])
    assert [
        (one.path, one.topic)
        for one in found(
            a_side(lock=with_first(lock, device={"gpu": mine.gpu})),
            a_side(lock=with_first(lock, device={"gpu": smaller})),
        )
    ] == [("device.gpu.0.memory_bytes", "device"), ("device.gpu.0.power_limit_mw", "timing")]


def first_changed(value: msgspec.Struct) -> dict[str, Any]:
    first = value.__struct_fields__[0]
    return {first: other(getattr(value, first))}


def test_a_digest_is_shown_by_its_head() -> None:
    assert brief(f"blake3:{'0123456789abcdef' * 4}") == "blake3:0123456789ab…"
    assert brief("blake3:0123") == "blake3:0123"


def mirrored(one: Found) -> Found:
    return replace(one, a=one.b, b=one.a)


def test_exchanging_the_sides_exchanges_every_value() -> None:
    a: Side = a_side()
    b = a_side(model="Q4_K_M", forced=("engine",))
    assert swapped(b, a) == told_of(a, b)


@pytest.mark.parametrize(
    "tables",
    [
        {"engine": {"file": ()}},
        {"point": {"read_back": UNSET, "prompts": UNSET}},
        {"model": {"sampling": {}, "recipe": (), "file": ()}},
        {"suite": {"file": ()}},
    ],
)
def test_exchanging_the_sides_exchanges_what_only_one_of_them_has(tables: dict[str, Any]) -> None:
    a, b = a_side(), a_side(lock=with_first(a_plain_lock(), **tables))
    assert swapped(b, a) == told_of(a, b)
    assert found(a, b)


def told_of(a: Side, b: Side) -> set[tuple[str, str, str, str]]:
    return {(one.path, one.topic, one.a, one.b) for one in found(a, b)}


def swapped(a: Side, b: Side) -> set[tuple[str, str, str, str]]:
    return {(one.path, one.topic, one.a, one.b) for one in map(mirrored, found(a, b))}


def test_distances_from_another_reference_are_of_another_suite() -> None:
    lock = a_kld_lock(gate=())
    model = replace(lock.model[0], tensors_digest=a_digest("other"), bits_per_weight=8.0)
    other = replace(lock, model=(model, *lock.model[1:]))
    sides = [a_side(lock=each, point="Q4_K_M@f16kv") for each in (lock, other)]
    (one,) = found(*sides)
    assert one == Found(
        path="suite.distance.reference.model",
        topic="suite",
        a=f"F16@f16kv ({head('tensors of F16')})",
        b=f"F16@f16kv ({head('other')})",
        why="held against another reference",
    )


def test_distances_from_a_reference_under_another_setting_are_of_another_suite() -> None:
    lock = a_kld_lock(gate=())
    setting = replace(lock.setting[0], name="q8kv", cache_type_k="q8_0")
    point = replace(lock.point[0], name="F16@q8kv", setting="q8kv")
    suite = replace(lock.suite[0], reference="F16@q8kv")
    other = replace(
        lock,
        setting=(*lock.setting, setting),
        point=(*lock.point, point),
        suite=(suite, *lock.suite[1:]),
    )
    sides = [a_side(lock=each, point="Q4_K_M@f16kv") for each in (lock, other)]
    assert [(one.path, one.topic, one.a, one.b) for one in found(*sides)] == [
        ("suite.distance.reference", "label", "F16@f16kv", "F16@q8kv"),
        ("suite.distance.reference.setting", "suite", "F16@f16kv", "F16@q8kv"),
    ]


def test_no_reference_beside_one_is_said() -> None:
    lock = a_kld_lock(gate=())
    none = replace(lock, suite=(replace(lock.suite[0], reference=""), *lock.suite[1:]))
    sides = [a_side(lock=each, point="Q4_K_M@f16kv") for each in (none, lock)]
    assert [(one.path, one.topic, one.a) for one in found(*sides)] == [
        ("suite.distance.reference", "label", ""),
        ("suite.distance.reference.model", "suite", "no reference"),
        ("suite.distance.reference.setting", "suite", "no reference"),
    ]
