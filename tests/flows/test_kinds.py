from __future__ import annotations

from types import ModuleType

import msgspec
import pytest

from qlock.core.spec import SuiteSpec
from qlock.engines import llama_cpp, llama_cpp_python, replay
from qlock.errors import InputError
from qlock.flows.kinds import engine_opener, items_of, members, params_of, suite_kind
from qlock.suites import kld, perplexity, tasks
from tests.fakes.documents import a_suite


def test_every_member_of_the_suites_is_a_kind() -> None:
    for name in members("qlock.suites"):
        kind = suite_kind(name)
        assert (kind.kind, kind.ask_version >= 1, kind.grade_version >= 1) == (name, True, True)
        assert set(kind.sources) <= set(kind.params.__struct_fields__)


def test_a_kind_is_what_its_module_defines() -> None:
    kind = suite_kind("perplexity")
    assert (kind.items, kind.ask, kind.grade, kind.trials) == (
        perplexity.items,
        perplexity.ask,
        perplexity.grade,
        perplexity.trials,
    )
    assert (suite_kind("tasks").params, suite_kind("tasks").sources) == (tasks.Params, ("items",))


def test_what_a_module_need_not_define_is_what_most_suites_are() -> None:
    assert (suite_kind("tasks").needs_reference, suite_kind("kld").needs_reference) == (False, True)
    assert suite_kind("kld").tokenizer_of is kld.tokenizer_of
    assert suite_kind("tasks").tokenizer_of({}, None) == ""
    assert suite_kind("kld").tensors_of is kld.tensors_of
    assert suite_kind("tasks").tensors_of({}, None) == ""


@pytest.mark.parametrize(
    "kind, module",
    [("llama-cpp-python", llama_cpp_python), ("llama.cpp", llama_cpp), ("replay", replay)],
)
def test_an_engine_is_found_by_its_name(kind: str, module: ModuleType) -> None:
    assert engine_opener(kind) is vars(module)["open_engine"]


@pytest.mark.parametrize(
    "kind, hint",
    [
        ("llama-cpp", "did you mean `llama.cpp`?"),
        ("llama_cpp", "did you mean `llama.cpp`?"),
        ("llama_cpp_python", "did you mean `llama-cpp-python`?"),
        ("replai", ""),
        ("interface", ""),
    ],
)
def test_an_engine_has_no_second_name_and_replay_is_not_offered(kind: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        engine_opener(kind)
    message = f"engine.kind: got `{kind}`, expected a known engine kind: llama.cpp, llama-cpp-python"
    assert (str(caught.value), caught.value.hint) == (message, hint)


@pytest.mark.parametrize("kind", ["interface", "tasks.rows", "../tasks", "nothing-like-it"])
def test_what_is_no_member_is_no_kind(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        suite_kind(kind)
    assert str(caught.value) == (
        f"kind: got `{kind}`, expected a known suite kind: {', '.join(members('qlock.suites'))}"
    )


def test_a_fault_in_the_items_is_one_of_their_file() -> None:
    kind = suite_kind("tasks")
    pin = a_suite(params=msgspec.to_builtins(tasks.Params(items="file:specs/tasks/orders.jsonl")))
    template = msgspec.structs.replace(pin.file[0], key="prompt.template", requested="file:own.jinja")
    file = msgspec.structs.replace(pin.file[0], key="items", requested="file:specs/tasks/orders.jsonl")
    pin = msgspec.structs.replace(pin, file=(file, template))
    params = params_of(kind, pin, where="suite")
    with pytest.raises(InputError) as caught:
        items_of(kind, params, pin, {"items": b'{"id": 7}\n'}, lambda _: ())
    assert str(caught.value.within("suite.orders")) == (
        "specs/tasks/orders.jsonl: line 1: id: got `7`, expected text"
    )


def test_the_suites_own_keys_become_its_struct_with_every_default() -> None:
    spec = SuiteSpec(name="wiki", kind="perplexity", params={"text": "file:x", "windows": 4})
    params = params_of(suite_kind("perplexity"), spec, where="suite.wiki")
    assert params == perplexity.Params(text="file:x", window_tokens=512, windows=4)


def test_a_lock_takes_no_default_of_a_suite() -> None:
    kind, whole = suite_kind("tasks"), tasks.Params(items="file:y")
    table = msgspec.to_builtins(whole)
    assert params_of(kind, a_suite(params=table), where="suite.orders") == whole
    del table["thinking"]["cut"]
    with pytest.raises(InputError) as caught:
        params_of(kind, a_suite(params=table), where="suite.orders")
    assert str(caught.value) == "suite.orders.thinking: the key `cut` is missing"


@pytest.mark.parametrize(
    "params, message, hint",
    [
        ({"text": "file:x", "tetx": 1}, "suite.wiki: unknown key `tetx`", "did you mean `text`?"),
        ({"text": "file:x", "samplin": {}}, "suite.wiki: unknown key `samplin`", "did you mean `sampling`?"),
        ({}, "suite.wiki: the key `text` is missing", ""),
        (
            {"text": "file:x", "window_tokens": 3},
            "suite.wiki.window_tokens: got `3`, expected an integer >= 4",
            "",
        ),
    ],
)
def test_a_key_that_does_not_fit_is_named(params: dict[str, object], message: str, hint: str) -> None:
    spec = SuiteSpec(name="wiki", kind="perplexity", params=params)
    with pytest.raises(InputError) as caught:
        params_of(suite_kind("perplexity"), spec, where="suite.wiki")
    assert (str(caught.value), caught.value.hint) == (message, hint)
