"""The spec: defaults, selection, rules across keys, and a digest of all that is locked and of nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.effects import leaves
from qlock.core.rules import NoMoreErrors
from qlock.core.sbatch import SlurmSpec
from qlock.core.spec import (
    AnchorSpec,
    CompareSpec,
    ModelSpec,
    PointSpec,
    SamplingSpec,
    SettingSpec,
    Spec,
    SuiteSpec,
    points,
    read_spec,
    spec_digest,
    suite_points,
)
from qlock.errors import ExitCode, InputError
from tests.broken.make import SPEC
from tests.fakes.changes import changed
from tests.fakes.documents import a_digest, a_spec, spec_bytes
from tests.strategies import strategy

replace = msgspec.structs.replace


def read(text: str | bytes) -> Spec:
    return read_spec(text if isinstance(text, bytes) else text.encode(), name="x.toml")


def refusal(text: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(text)
    assert caught.value.exit_code is ExitCode.INPUT
    return str(caught.value)


def edited(old: str, new: str) -> str:
    assert SPEC.decode().count(old) == 1
    return SPEC.decode().replace(old, new)


# ---------------------------------------------------------------- reading


def test_what_is_left_out_has_its_default() -> None:
    assert read(SPEC) == Spec(
        spec_version=1,
        name="small",
        model=(ModelSpec(name="Q4_K_M", source="file:models/q4.gguf"),),
        setting=(SettingSpec(name="f16kv", slots=4),),
        suite=(
            SuiteSpec(
                name="orders",
                kind="tasks",
                sampling=SamplingSpec(temperature=0.5),
                params={"items": "file:tasks/orders.jsonl"},
            ),
        ),
    )


def test_the_defaults_are_the_documented_ones() -> None:
    assert msgspec.to_builtins(SettingSpec(name="s")) == {
        "name": "s",
        "context_tokens": 2048,
        "replicas": 1,
        "batch_tokens": 2048,
        "ubatch_tokens": 512,
        "threads": 2,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "flash_attention": False,
        "gpu_layers": 0,
        "split_mode": "none",
        "main_gpu": 0,
        "kv_offload": True,
        "op_offload": False,
        "swa_full": False,
        "repack": True,
        "mmap": True,
    }
    assert msgspec.to_builtins(SuiteSpec(name="a", kind="b").sampling) == {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "penalty_tokens": 64,
        "seed": 0,
        "answer_tokens": 256,
        "stop": (),
    }


@pytest.mark.parametrize("day", ["2026-1-1", "20260101", "２０２６-01-01", ""])
def test_other_ways_to_write_the_day_are_refused(day: str) -> None:
    text = edited('name = "small"\n', f'name = "small"\nfrozen_date = "{day}"\n')
    assert refusal(text) == f"x.toml: frozen_date: got `{day}`, expected a day such as `2026-01-01`"


def test_keys_of_a_suite_itself_are_set_apart() -> None:
    text = edited('items = "', 'params = 1\nwindow = {a = [1]}\nitems = "')
    assert read(text).suite[0].params == {
        "params": 1,
        "window": {"a": [1]},
        "items": "file:tasks/orders.jsonl",
    }


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "x.toml: the key `spec_version` is missing"),
        ("spec_version = 1", "x.toml: the key `name` is missing"),
        ("spec_version = 1.0", "x.toml: got spec_version `1.0`, expected `1`"),
        ("spec_version = true", "x.toml: got spec_version `True`, expected `1`"),
        ("spec_version = 1\nsuite = 3", "x.toml: suite: got `3`, expected an array"),
        ("spec_version = 1\nsuite = [3]", "x.toml: suite[0]: got `3`, expected a table"),
        (
            'spec_version = 1\nname = "a"\nmodel = []',
            "x.toml: model: expected an array of length >= 1",
        ),
        (
            edited("slots = 4", "threads = 1025"),
            "x.toml: setting[0].threads: got `1025`, expected an integer <= 1024",
        ),
        (
            edited("slots = 4", "batch_threads = 100000"),
            "x.toml: setting[0].batch_threads: got `100000`, expected an integer <= 1024",
        ),
        (
            edited("slots = 4", "batch_tokens = 2147483648"),
            "x.toml: setting[0].batch_tokens: got `2147483648`, expected an integer <= 2147483647",
        ),
        (
            edited("temperature = 0.5", "temperature = true"),
            "x.toml: suite[0].sampling.temperature: got `true`, expected a number",
        ),
        (
            edited("temperature = 0.5", 'stop = [""]'),
            "x.toml: suite[0].sampling.stop[0]: got ``, expected text of length >= 1",
        ),
        (
            edited('kind = "tasks"', 'kind = "tasks"\nrepeats = 1001'),
            "x.toml: suite[0].repeats: got `1001`, expected an integer <= 1000",
        ),
        (
            edited('kind = "tasks"', 'kind = "tasks"\nsettings = ["q8"]'),
            "x.toml: suite[0].settings: got `q8`, expected a setting of this spec: f16kv",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    assert refusal(text) == message


POINT = PointSpec(model="F16", setting="f16kv")
ANCHOR = AnchorSpec(model="F16", suite="wikitext", setting="f16kv", published=1.0, source="", tolerance=0.5)
GATE = NoMoreErrors(suite="orders")
TEXT, EXAM = a_spec().suite


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"point": (POINT, PointSpec(model="m", setting="f16kv"))},
            "point[1].model: got `m`, expected a model of this spec: F16, Q4_K_M",
        ),
        (
            {"point": (PointSpec(model="F16", setting="s"),)},
            "point[0].setting: got `s`, expected a setting of this spec: f16kv",
        ),
        (
            {"anchor": (msgspec.structs.replace(ANCHOR, model="m"),)},
            "anchor[0].model: got `m`, expected a model of this spec: F16, Q4_K_M",
        ),
        (
            {"anchor": (ANCHOR, msgspec.structs.replace(ANCHOR, suite="s"))},
            "anchor[1].suite: got `s`, expected a suite of this spec: wikitext, orders",
        ),
        (
            {"anchor": (msgspec.structs.replace(ANCHOR, setting="s"),)},
            "anchor[0].setting: got `s`, expected a setting of this spec: f16kv",
        ),
        (
            {"gate": (GATE, msgspec.structs.replace(GATE, suite="s"))},
            "gate[1].suite: got `s`, expected a suite of this spec: wikitext, orders",
        ),
        (
            {
                "anchor": (ANCHOR, replace(ANCHOR, suite="orders")),
                "suite": (TEXT, replace(EXAM, models=("Q4_K_M",))),
            },
            "anchor[1]: `F16@f16kv` does not sit the suite `orders`, expected one of: Q4_K_M@f16kv",
        ),
        (
            {"anchor": (replace(ANCHOR, setting=UNSET),), "suite": (replace(TEXT, models=("Q4_K_M",)), EXAM)},
            "anchor[0]: `F16` does not sit the suite `wikitext`, expected one of: Q4_K_M@f16kv",
        ),
        (
            {"suite": (TEXT, replace(EXAM, models=("Q4_K_M",)))},
            (
                "gate[0]: the reference `F16@f16kv` does not sit the suite `orders`, "
                "which is sat by: Q4_K_M@f16kv"
            ),
        ),
        (
            {"suite": (TEXT, replace(EXAM, models=("F16",)))},
            (
                "gate[0]: the reference `F16@f16kv` sits the suite `orders` alone, "
                "expected a suite that another point sits too"
            ),
        ),
        (
            {"compare": CompareSpec(reference="a@b")},
            "compare.reference: got `a@b`, expected a point of this spec: F16@f16kv, Q4_K_M@f16kv",
        ),
        (
            {
                "point": (PointSpec(model="Q4_K_M", setting="f16kv"),),
                "compare": CompareSpec(reference="F16@f16kv"),
            },
            "compare.reference: got `F16@f16kv`, expected a point of this spec: Q4_K_M@f16kv",
        ),
        (
            {"setting": (SettingSpec(name="a"), SettingSpec(name="a"))},
            "setting: two entries are called `a`: setting[0] and setting[1]",
        ),
        (
            {
                "suite": (
                    SuiteSpec(name="a", kind="k"),
                    SuiteSpec(name="b", kind="k"),
                    SuiteSpec(name="b", kind="k"),
                )
            },
            "suite: two entries are called `b`: suite[1] and suite[2]",
        ),
    ],
)
def test_rules_across_tables(changes: dict[str, Any], message: str) -> None:
    assert refusal(spec_bytes(a_spec(**changes))) == f"x.toml: {message}"


def test_without_a_reference_a_gate_waits_for_the_one_that_is_named_later() -> None:
    spec = a_spec(suite=(TEXT, replace(EXAM, models=("F16",))), compare=UNSET)
    assert read_spec(spec_bytes(spec), name="x.toml").gate == spec.gate


def test_of_many_points_the_first_ten_are_told() -> None:
    settings = tuple(SettingSpec(name=f"s{index:02}") for index in range(12))
    anchor = replace(ANCHOR, model="F16", setting=UNSET)
    spec = a_spec(
        setting=settings, anchor=(anchor,), suite=(replace(TEXT, models=("Q4_K_M",)),), compare=UNSET, gate=()
    )
    told = ", ".join(f"Q4_K_M@s{index:02}" for index in range(10))
    assert refusal(spec_bytes(spec)) == (
        f"x.toml: anchor[0]: `F16` does not sit the suite `wikitext`, expected one of: {told} and 2 more"
    )


def test_more_than_anybody_measures_is_refused_before_it_is_counted_out() -> None:
    plain = {
        "spec_version": 1,
        "name": "much",
        "model": [{"name": f"m{index}", "source": "file:a"} for index in range(400)],
        "setting": [{"name": f"s{index}"} for index in range(251)],
        "suite": [{"name": "a", "kind": "b"}],
    }
    assert (
        refusal(tomli_w.dumps(plain))
        == "x.toml: got 100400 pairs of a point and a suite, expected at most 100000"
    )


def test_a_quantized_v_cache_goes_with_flash_attention() -> None:
    text = edited("slots = 4", 'cache_type_v = "q8_0"\nflash_attention = true')
    assert read(text).setting[0].cache_type_v == "q8_0"


# ---------------------------------------------------------------- points


def test_points_are_the_product_of_models_and_settings() -> None:
    spec = a_spec(setting=(SettingSpec(name="a"), SettingSpec(name="b")))
    assert list(points(spec)) == ["F16@a", "F16@b", "Q4_K_M@a", "Q4_K_M@b"]
    assert points(spec)["F16@b"] == PointSpec(model="F16", setting="b")


def test_chosen_points_are_the_only_ones() -> None:
    assert list(points(a_spec(point=(POINT,)))) == ["F16@f16kv"]


@pytest.mark.parametrize(
    "models, chosen, expected",
    [
        (UNSET, UNSET, ["F16@a", "F16@b", "Q4_K_M@a", "Q4_K_M@b"]),
        (("Q4_K_M",), UNSET, ["Q4_K_M@a", "Q4_K_M@b"]),
        (UNSET, ("b",), ["F16@b", "Q4_K_M@b"]),
        (("F16",), ("b", "a"), ["F16@a", "F16@b"]),
        ((), UNSET, []),
    ],
)
def test_a_suite_is_sat_by_the_points_it_selects(models: Any, chosen: Any, expected: list[str]) -> None:
    spec = a_spec(setting=(SettingSpec(name="a"), SettingSpec(name="b")))
    suite = SuiteSpec(name="x", kind="k", models=models, settings=chosen)
    assert list(suite_points(spec, suite)) == expected


# ---------------------------------------------------------------- the digest


def test_the_digest_never_changes_between_releases() -> None:
    assert (
        spec_digest(read(SPEC)) == "blake3:f6fa915843665b6ed1440bb85d6f7b2155d1cb7b2a7639529204a410a44b9362"
    )


@pytest.mark.parametrize(
    "old, new",
    [
        ('name = "small"', "name = 'small' # the small one"),
        ("slots = 4", "slots = 0x4"),
        ("temperature = 0.5", "temperature = 5e-1"),
        ('spec_version = 1\nname = "small"', 'name = "small"\n\n\nspec_version = 1'),
        ("[[setting]]\n", "[[ setting ]]\r\n"),
        ("[suite.sampling]\ntemperature", "sampling.temperature"),
        ("slots = 4", "slots = 4\nbatch_tokens = 2_048"),
        ("temperature = 0.5\n", "temperature = 0.5\n[slurm]\npartition = 'gpu'\n"),
    ],
)
def test_how_it_is_written_does_not_change_the_digest(old: str, new: str) -> None:
    assert spec_digest(read(edited(old, new))) == spec_digest(read(SPEC))


@pytest.mark.parametrize("number", ["0", "0.0", "-0.0", "0e9", "-0"])
def test_zero_is_zero_however_it_is_written(number: str) -> None:
    spec = read(edited("temperature = 0.5", f"temperature = {number}"))
    assert spec_digest(spec) == spec_digest(read(edited("temperature = 0.5\n", "")))


LEAVES = [leaf for leaf in leaves(a_spec()) if not leaf.path.startswith("slurm.")]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_every_leaf_changes_the_digest(leaf: Any) -> None:
    assert spec_digest(changed(a_spec(), leaf.path)) != spec_digest(a_spec())


@pytest.mark.parametrize("name", ["batch_threads", "models", "settings", "limit", "compare"])
def test_what_was_left_out_changes_the_digest_when_it_is_said(name: str) -> None:
    spec = a_spec(compare=UNSET)
    setting, suite = spec.setting[0], spec.suite[0]
    said: dict[str, dict[str, Any]] = {
        "batch_threads": {"setting": (msgspec.structs.replace(setting, batch_threads=2),)},
        "models": {"suite": (msgspec.structs.replace(suite, models=("F16", "Q4_K_M")), spec.suite[1])},
        "settings": {"suite": (msgspec.structs.replace(suite, settings=("f16kv",)), spec.suite[1])},
        "limit": {"suite": (msgspec.structs.replace(suite, limit=1), spec.suite[1])},
        "compare": {"compare": CompareSpec(reference="F16@f16kv")},
    }
    assert spec_digest(msgspec.structs.replace(spec, **said[name])) != spec_digest(spec)


def test_where_it_runs_does_not_change_the_digest() -> None:
    assert spec_digest(a_spec(slurm=SlurmSpec(partition="cpu", cpus=3))) == spec_digest(a_spec())
    assert spec_digest(a_spec()) != a_digest("")


# ---------------------------------------------------------------- laws


def shuffled(value: Any) -> Any:
    """The same tables with their keys in another order."""
    match value:
        case dict():
            return {key: shuffled(inner) for key, inner in reversed(value.items())}
        case list() | tuple():
            return [shuffled(inner) for inner in value]
        case _:
            return value


@settings(max_examples=50)
@given(strategy(Spec))
def test_a_spec_is_read_as_it_was_written(spec: Spec) -> None:
    data = spec_bytes(spec)
    assert read(data) == spec
    plain = msgspec.to_builtins(spec)
    for suite in plain["suite"]:
        suite.update(suite.pop("params"))
    assert spec_digest(read(tomli_w.dumps(shuffled(plain)))) == spec_digest(spec)


@given(
    st.binary(max_size=80)
    | st.builds(
        lambda at, new, length: SPEC[:at] + new + SPEC[at + length :],
        st.integers(0, len(SPEC)),
        st.binary(max_size=4)
        | st.sampled_from([b"[[", b"]]", b'"', b"\n", b"=", b"1e999", b"nan", b"9" * 5000]),
        st.integers(0, 30),
    )
)
def test_any_bytes_are_a_spec_or_an_error(data: bytes) -> None:
    try:
        spec = read(data)
    except InputError as error:
        if not str(error).startswith("x.toml"):
            raise
    else:
        assert read(spec_bytes(spec)) == spec
