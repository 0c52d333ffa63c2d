from __future__ import annotations

from pathlib import Path

import pytest

from qlock.errors import AbsentError, InputError
from qlock.flows.kinds import engine_opener
from tests.fakes.project import Project, items_jsonl, refusal

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "old, new, message, hint",
    [
        (
            'kind = "tasks"',
            'kind = "task"',
            "suite.digits.kind: got `task`, expected a known suite kind: perplexity, tasks",
            "did you mean `tasks`?",
        ),
        (
            'kind = "tasks"',
            'kind = "bfcl"',
            "suite.digits.kind: got `bfcl`, expected a known suite kind: perplexity, tasks",
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
                "hub:OWNER/REPO/FILE or url:https://…"
            ),
            "",
        ),
        (
            "file:tasks/digits.jsonl",
            "hub:owner/repo/digits.jsonl",
            "suite.digits: got `hub:owner/repo/digits.jsonl`, this version of qlock reads file: and wheel: sources only",
            "download the file and name it with file:PATH",
        ),
    ],
)
def test_a_word_that_nobody_knows_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str, hint: str
) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text.replace(old, new))
    assert refusal(project, InputError) == (message, hint)


def test_an_unknown_engine_kind_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        engine_opener("llama-cpp-pythn")
    assert caught.value.hint == "did you mean `llama-cpp-python`?"


def test_a_gpu_that_this_version_cannot_use_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text + '\n[device]\nkind = "gpu"\n')
    assert refusal(project, AbsentError) == (
        "device.kind: the spec asks for a GPU, and the embedded engine of this version measures on the CPU",
        'set `[device] kind = "cpu"`',
    )


def test_two_items_of_one_id_are_refused_with_both_places(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("tasks/digits.jsonl", items_jsonl(3) + items_jsonl(2))
    message, _ = refusal(project, InputError)
    assert message == ("point.A@plain.suite.digits: the id `q00` occurs twice: on line 1 and on line 4")
