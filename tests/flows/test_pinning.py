from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from qlock.core.spec import PromptSpec, SettingSpec, SuiteSpec
from qlock.errors import InputError
from qlock.flows.kinds import engine_opener, members
from qlock.flows.pinning import fallen_back, setting, sources_of
from tests.fakes.documents import a_lock
from tests.fakes.project import Project, items_jsonl, refusal

ROOT = Path(__file__).resolve().parents[2]
KINDS = ", ".join(members("qlock.suites"))


@pytest.mark.parametrize(
    "old, new, message, hint",
    [
        (
            'kind = "tasks"',
            'kind = "task"',
            f"suite.digits.kind: got `task`, expected a known suite kind: {KINDS}",
            "did you mean `tasks`?",
        ),
        (
            'kind = "tasks"',
            'kind = "chess"',
            f"suite.digits.kind: got `chess`, expected a known suite kind: {KINDS}",
            "",
        ),
        (
            "window_tokens = 64",
            "window_token = 64",
            "suite.text: unknown key `window_token`",
            "did you mean `window_tokens`?",
        ),
        (
            "windows = 3",
            "windws = 3",
            "suite.text: unknown key `windws`",
            "did you mean `windows`?",
        ),
        (
            "windows = 3",
            'windows = "3"',
            "suite.text.windows: got text `3`, expected an integer",
            "",
        ),
        (
            'text = "file:data/text.txt"\n',
            "",
            "suite.text: the key `text` is missing",
            "",
        ),
        (
            "file:tasks/digits.jsonl",
            "tasks/digits.jsonl",
            (
                "suite.digits: got `tasks/digits.jsonl`, expected file:PATH, wheel:NAME==VERSION/MEMBER, "
                "hub:OWNER/REPO/FILE or url:https://…#sha256=…"
            ),
            "",
        ),
    ],
)
def test_a_word_that_nobody_knows_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str, hint: str
) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text.replace(old, new))
    assert refusal(project, InputError) == (message, hint)


def test_every_source_of_a_suite_is_given_by_its_key() -> None:
    suite = SuiteSpec(
        name="exam",
        kind="tasks",
        prompt=PromptSpec(template="file:chat.jinja"),
        params={"items": "file:tasks/exam.jsonl"},
    )
    assert sources_of(suite) == {"items": "file:tasks/exam.jsonl", "prompt.template": "file:chat.jinja"}
    text = SuiteSpec(name="text", kind="kld", params={"text": "file:data/text.txt"})
    assert sources_of(text) == {"text": "file:data/text.txt"}


def test_an_unknown_engine_kind_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        engine_opener("llama-cpp-pythn")
    assert caught.value.hint == "did you mean `llama-cpp-python`?"


def test_two_items_of_one_id_are_refused_with_both_places(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("tasks/digits.jsonl", items_jsonl(3) + items_jsonl(2))
    message, _ = refusal(project, InputError)
    assert message == ("tasks/digits.jsonl: the id `q00` occurs twice: on line 1 and on line 4")


def test_a_setting_says_what_llama_cpp_will_do_with_it() -> None:
    made = setting(
        SettingSpec(name="s", context_tokens=600, slots=2, threads=3), None, engine="llama-cpp-python"
    )
    assert (made.context_tokens, made.slots, made.slots_requested, made.slots_why) == (768, 2, 2, "")
    assert (made.batch_tokens, made.ubatch_tokens) == (1536, 512)
    assert (made.threads, made.batch_threads) == (3, 3)
    small = setting(
        SettingSpec(name="s", context_tokens=1, slots=1, batch_threads=4), None, engine="llama-cpp-python"
    )
    assert (small.context_tokens, small.batch_tokens, small.ubatch_tokens) == (256, 256, 256)
    assert small.batch_threads == 4


def test_every_choice_of_a_setting_is_carried_over() -> None:
    asked = SettingSpec(
        name="s",
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        flash_attention=True,
        gpu_layers=7,
        split_mode="layer",
        main_gpu=1,
        kv_offload=False,
        op_offload=True,
        swa_full=True,
        repack=False,
        mmap=False,
    )
    made = setting(asked, None, engine="llama-cpp-python")
    for name in SettingSpec.__struct_fields__:
        if name not in ("context_tokens", "batch_threads", "slots"):
            assert getattr(made, name) == getattr(asked, name)


def test_an_engine_has_slots_or_replicas() -> None:
    embedded = setting(SettingSpec(name="s"), None, engine="llama-cpp-python")
    build = setting(SettingSpec(name="s", replicas=3), None, engine="llama.cpp")
    assert (embedded.slots, embedded.slots_requested, embedded.replicas, embedded.batch_tokens) == (
        8,
        8,
        1,
        2048,
    )
    assert (build.slots, build.slots_requested, build.replicas, build.batch_tokens) == (1, 1, 3, 2048)


@pytest.mark.parametrize(
    "asked, engine, message, hint",
    [
        (
            {"slots": 2},
            "llama.cpp",
            "setting.s.slots: got `2`, expected `1`: a process of the engine `llama.cpp` does one item at a time",
            "set `replicas`: these are several processes",
        ),
        (
            {"replicas": 2},
            "llama-cpp-python",
            "setting.s.replicas: got `2`, expected `1`: the engine `llama-cpp-python` is one process",
            "set `slots`: these are decoded side by side",
        ),
    ],
)
def test_what_an_engine_does_not_have_is_refused(
    *, asked: dict[str, Any], engine: str, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        setting(SettingSpec(name="s", **asked), None, engine=engine)
    assert (str(caught.value), caught.value.hint) == (message, hint)


def test_a_setting_that_fell_back_stays_so_until_it_is_asked_for_otherwise() -> None:
    asked = SettingSpec(name="plain", slots=8)
    narrow = fallen_back(setting(asked, None, engine="llama-cpp-python"), "M@plain: shaky")
    assert (narrow.slots, narrow.slots_requested, narrow.batch_tokens) == (1, 8, 2048)
    old = msgspec.structs.replace(a_lock(), setting=(narrow,))
    assert setting(asked, old, engine="llama-cpp-python") == narrow
    for other in (
        msgspec.structs.replace(asked, slots=4),
        msgspec.structs.replace(asked, name="other"),
        msgspec.structs.replace(asked, context_tokens=4096),
    ):
        assert setting(other, old, engine="llama-cpp-python").slots == other.slots


def test_a_data_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)

    reads = project.world.files

    class Files:
        read_prefix = staticmethod(reads.read_prefix)
        write_atomic = staticmethod(reads.write_atomic)

        @staticmethod
        def read_bounded(path: Path, max_bytes: int, what: str) -> bytes:
            data = reads.read_bounded(path, max_bytes, what)
            return data + b" " if what == "text" else data

    project.change_world(files=Files())
    assert refusal(project, InputError) == ("suite.text.text: `text.txt` changed while it was read", "")


def test_a_suites_own_template_is_pinned_and_used(tmp_path: Path) -> None:
    project = Project(tmp_path)
    row = b'{"id": "q", "messages": [{"role": "user", "content": "hi"}], "expected": "1", "grader": {"kind": "exact"}}\n'
    project.write("tasks/digits.jsonl", row)
    project.write("own.jinja", "own:{{ messages[0].content }}")
    plain = project.resolve().lock
    project.write_spec(
        lambda text: text.replace(
            "[suite.sampling]", '[suite.prompt]\ntemplate = "file:own.jinja"\n[suite.sampling]'
        )
    )
    lock = project.lock().lock
    suite = next(pin for pin in lock.suite if pin.name == "digits")
    assert [(file.key, file.name) for file in suite.file] == [
        ("items", "digits.jsonl"),
        ("prompt.template", "own.jinja"),
    ]
    assert lock.point[0].prompts
    assert plain.point[0].prompts
    assert lock.point[0].prompts[0].text_digest != plain.point[0].prompts[0].text_digest
    assert project.run().state == "sealed"
    project.write("own.jinja", b"\xff")
    assert refusal(project, InputError)[0] == "suite.digits: own.jinja: line 1 is not UTF-8"
