"""`show`: the items of a run, as far as its folder goes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from qlock.core.exchange import (
    Chat,
    Complete,
    Completed,
    Failed,
    Message,
    Raw,
    Score,
    Scored,
    Ungraded,
    Wrong,
)
from qlock.engines.interface import Broken
from qlock.errors import AbsentError, IncompleteError, InputError, UsageError
from qlock.flows.grading import word
from qlock.flows.show import Asked, ItemSeen, Shown, show
from tests.fakes.project import Project, folder_of, sealed

ROWS: list[dict[str, object]] = [
    {
        "id": "hello",
        "messages": [{"role": "user", "content": "Say hello"}],
        "expected": "hello",
        "slices": {"lang": "en"},
    },
    {"id": "four", "prompt": "2 and 2 is", "expected": "4"},
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    lines = [json.dumps(row | {"grader": {"kind": "exact"}}) + "\n" for row in ROWS]
    project.write("tasks/digits.jsonl", "".join(lines))
    project.lock()
    project.script.replies |= {"hello": "hello", "four": "5"}
    return project


def shown(project: Project, item: str = "", **asked: object) -> Shown:
    plain: dict[str, Any] = {"path": project.runs, "item": item} | asked
    return show(project.world, Asked(**plain))


def refused(project: Project, item: str = "", **asked: object) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        shown(project, item, **asked)
    return str(caught.value), caught.value.hint


def row(item: ItemSeen) -> tuple[object, ...]:
    return item.item, item.point, word(item.outcome), item.ending, item.tokens


def test_items_stand_suite_by_suite_in_the_order_in_which_they_are_asked(project: Project) -> None:
    sealed(project)
    seen = shown(project)
    assert (seen.run, seen.is_sealed) == (
        f"{project.lock_path.stem}/{next(project.runs.iterdir()).name}",
        True,
    )
    assert (seen.forced, seen.left_out, seen.not_begun) == ((), 0, {})
    assert [row(item) for item in seen.items if item.suite == "digits"] == [
        ("hello", "A@plain", "right", "eos", 5),
        ("four", "A@plain", "wrong", "eos", 1),
        ("hello", "B@plain", "right", "eos", 5),
        ("four", "B@plain", "wrong", "eos", 1),
    ]
    assert [row(item) for item in seen.items[4:]] == [
        (f"window-000{number}", point, "nats", UNSET, 31)
        for point in ("A@plain", "B@plain")
        for number in (1, 2, 3)
    ]
    assert [item.exchanges for item in seen.items] == [UNSET] * 10
    assert [item.suite for item in seen.items] == ["digits"] * 4 + ["text"] * 6


def test_an_item_has_what_was_asked_and_answered(project: Project) -> None:
    sealed(project)
    (seen,) = shown(project, "four", point="A@plain").items
    assert seen.outcome == Wrong(why="got `5`, expected `4`")
    (exchange,) = seen.exchanges or ()
    assert exchange.request == Complete(prompt=Raw(text="2 and 2 is"))
    assert isinstance(exchange.reply, Completed)
    assert (exchange.reply.text, exchange.reply.ending) == ("5", "eos")


def test_a_window_has_its_tokens_and_their_cost(project: Project) -> None:
    sealed(project)
    (seen,) = shown(project, "window-0002", point="B@plain").items
    (exchange,) = seen.exchanges or ()
    assert isinstance(exchange.request, Score)
    assert isinstance(exchange.reply, Scored)
    assert len(exchange.request.tokens) == 64
    assert len(exchange.reply.nats) == 31 == 64 - exchange.request.score_from


def test_a_conversation_is_whole(project: Project) -> None:
    prompt = '[suite.prompt]\nsystem = "Be brief"\nfew_shot = [{role = "user", content = "Say a"}]\n'
    project.write_spec(lambda text: text.replace("answer_tokens = 8\n", f"answer_tokens = 8\n{prompt}"))
    project.lock()
    sealed(project)
    (seen,) = shown(project, "hello", point="A@plain").items
    assert seen.slices == {"lang": "en"}
    assert [exchange.request for exchange in seen.exchanges or ()] == [
        Complete(
            prompt=Chat(
                messages=(
                    Message(role="system", content="Be brief"),
                    Message(role="user", content="Say a"),
                    Message(role="user", content="Say hello"),
                )
            )
        )
    ]


def test_filters(project: Project) -> None:
    sealed(project)
    for asked, expected in (
        ({"outcome": ("wrong",)}, [("four", "A@plain"), ("four", "B@plain")]),
        ({"outcome": ("wrong", "right"), "point": "B@plain"}, [("hello", "B@plain"), ("four", "B@plain")]),
        ({"ending": ("budget",)}, []),
        ({"ending": ("budget", "eos"), "outcome": ("right",), "point": "A@plain"}, [("hello", "A@plain")]),
        ({"suite": "text", "point": "A@plain"}, [(f"window-000{n}", "A@plain") for n in (1, 2, 3)]),
    ):
        assert [(item.item, item.point) for item in shown(project, **asked).items] == expected
    assert shown(project, outcome=("wrong",), suite="digits").left_out == 2


def test_loops_are_told(project: Project) -> None:
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 90"))
    project.lock()
    project.script.replies["four"] = "no " * 30
    project.run()
    assert [item.loops for item in shown(project, suite="digits", point="A@plain").items] == [False, True]


def test_a_run_that_is_not_whole_is_shown_as_far_as_it_goes(project: Project) -> None:
    project.script.replies["four"] = Broken(id="four", why="the engine died")
    assert project.run().state == "incomplete"
    seen = shown(project, suite="digits")
    assert not seen.is_sealed
    assert [row(item) for item in seen.items[:2]] == [
        ("hello", "A@plain", "right", "eos", 5),
        ("four", "A@plain", "ungraded", "error", 0),
    ]
    assert seen.items[1].outcome == Ungraded(why="the engine died")
    (exchange,) = shown(project, "four", point="A@plain").items[0].exchanges or ()
    assert exchange.reply == Failed(why="the engine died")


def test_items_without_a_row_are_not_answered_yet(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    (folder.path / "seal.json").unlink()
    record = folder.record_path("digits.A@plain.1")
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:2]))
    seen = shown(project, "four")
    assert [item.is_answered for item in seen.items] == [False, True]
    assert seen.items[0].outcome == Ungraded(why="not answered yet")
    (exchange,) = seen.items[0].exchanges or ()
    assert (exchange.request, exchange.reply) == (Complete(prompt=Raw(text="2 and 2 is")), UNSET)


def test_jobs_of_which_nothing_was_asked(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    (folder.path / "seal.json").unlink()
    for name in ("record", "grades", "items"):
        shutil.rmtree(folder.path / name)
    seen = shown(project)
    assert seen.items == ()
    assert seen.not_begun == {
        "digits.A@plain.1": 2,
        "digits.B@plain.1": 2,
        "text.A@plain.1": 3,
        "text.B@plain.1": 3,
    }
    with pytest.raises(IncompleteError) as caught:
        shown(project, "four", suite="digits", point="A@plain")
    assert (str(caught.value), caught.value.hint) == (
        "the run has no item `four` yet, and of digits.A@plain.1 not every item was asked",
        "",
    )


def test_an_item_that_may_be_asked_later_is_not_taken_for_one_like_it(project: Project) -> None:
    assert project.run(task="B@plain").state == "sealed"
    with pytest.raises(IncompleteError) as caught:
        shown(project, "fout", suite="digits")
    assert (str(caught.value), caught.value.hint) == (
        "the run has no item `fout` yet, and of digits.A@plain.1 not every item was asked",
        "did you mean `four`?",
    )


def test_tasks_that_were_not_brought_together(project: Project) -> None:
    assert project.run(task="B@plain").state == "sealed"
    seen = shown(project, suite="digits")
    assert [(item.point, item.is_answered) for item in seen.items] == [("B@plain", True)] * 2
    assert seen.not_begun == {"digits.A@plain.1": 2}
    assert not seen.is_sealed
    task = next(project.runs.iterdir()) / "tasks" / "B@plain"
    alone = shown(project, path=task)
    assert alone.is_sealed
    assert {item.point for item in alone.items} == {"B@plain"}
    assert refused(project, point="A@plain", path=task) == (
        "got point `A@plain`, expected one of: B@plain",
        "did you mean `B@plain`?",
    )


def test_shards_that_were_not_brought_together(project: Project) -> None:
    # Of the 2 questions and 3 windows of a point two shards have 2 and 3.
    assert project.run(task="B@plain@2of2").state == "sealed"
    seen = shown(project)
    assert {item.suite for item in seen.items} == {"text"}
    assert seen.not_begun == {"digits.A@plain.1": 2, "text.A@plain.1": 3, "digits.B@plain.1": 2}
    assert project.run(task="B@plain@1of2").state == "sealed"
    assert project.run(task="A@plain@2of3").state == "sealed"
    seen = shown(project)
    assert [(item.suite, item.point, item.is_answered) for item in seen.items] == [
        ("digits", "A@plain", True),
        *[("digits", "B@plain", True)] * 2,
        ("text", "A@plain", True),
        *[("text", "B@plain", True)] * 3,
    ]
    assert seen.not_begun == {"digits.A@plain.1": 1, "text.A@plain.1": 2}
    task = next(project.runs.iterdir()) / "tasks" / "A@plain@2of3"
    alone = shown(project, path=task)
    assert [(item.suite, item.item) for item in alone.items] == [
        (item.suite, item.item) for item in seen.items if item.point == "A@plain"
    ]
    assert (alone.is_sealed, alone.not_begun) == (True, {})


def test_repeats_are_told_apart(project: Project) -> None:
    project.write_spec(lambda text: text.replace('kind = "tasks"', 'kind = "tasks"\nrepeats = 2'))
    project.lock()
    sealed(project)
    seen = shown(project, "four", point="A@plain")
    assert [item.repeat for item in seen.items] == [1, 2]


def test_forced_facts_are_told(project: Project) -> None:
    project.run(allow=("device",))
    assert shown(project).forced == ("device",)


def test_what_the_run_does_not_have(project: Project) -> None:
    sealed(project)
    assert refused(project, "fout") == ("the run has no item `fout`", "did you mean `four`?")
    assert refused(project, "\x1b") == (
        "the run has no item `\\x1b`",
        "without an item, all of them are listed",
    )
    assert refused(project, suite="x") == ("got suite `x`, expected one of: digits, text", "")
    assert refused(project, point="x") == ("got point `x`, expected one of: A@plain, B@plain", "")
    assert refused(project, point="B") == (
        "got point `B`, expected one of: A@plain, B@plain",
        "did you mean `B@plain`?",
    )
    assert refused(project, outcome=("bad",)) == (
        (
            "got outcome `bad`, expected one of: "
            "right, wrong, partial, unparsable, ungraded, excluded, nats, divergence"
        ),
        "",
    )
    assert refused(project, ending=("full",)) == (
        "got ending `full`, expected one of: eos, stop, budget, context, error",
        "",
    )


def test_a_suite_that_a_point_does_not_sit(project: Project) -> None:
    project.write_spec(lambda text: text.replace('kind = "tasks"', 'kind = "tasks"\nmodels = ["A"]'))
    project.lock()
    sealed(project)
    assert refused(project, suite="digits", point="B@plain") == (
        "the point `B@plain` does not sit the suite `digits`",
        "",
    )


@pytest.mark.parametrize("what", ["record", "grades", "items"])
def test_what_was_changed_after_the_seal_is_not_shown(project: Project, what: str) -> None:
    folder = folder_of(project, sealed(project))
    for path in (folder.path / what).iterdir():
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(InputError, match="the file was changed after the run was sealed"):
        shown(project)


def test_items_that_were_edited_before_the_seal_are_not_shown(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    (folder.path / "seal.json").unlink()
    for path in (folder.path / "items").iterdir():
        path.write_bytes(path.read_bytes().replace(b"2 and 2", b"3 and 3"))
    with pytest.raises(InputError, match="the items are not those that were asked: the file was edited"):
        shown(project, suite="digits")


def test_no_run(project: Project) -> None:
    with pytest.raises(AbsentError, match="there is no run at"):
        shown(project)
