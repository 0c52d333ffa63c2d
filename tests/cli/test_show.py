"""`qlock show`: what is said and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from qlock.cli import show as module
from qlock.core.endings import ENDINGS
from qlock.core.exchange import Diverge, Diverged, Ungraded
from qlock.engines.interface import Broken
from qlock.flows.show import OUTCOMES, Exchange, ItemSeen
from tests.cli.conftest import Type
from tests.fakes.project import Project

WHY = "got `\\x1b[31mB@plain: right↵A@plain: right\\u202e`, expected `hello`"
RUNS = "runs/small@cpu-amd-1a-02"
HOSTILE = "\x1b[31mB@plain: right\nA@plain: right\u202e"


@pytest.fixture
def project(project: Project) -> Project:
    rows: list[dict[str, object]] = [
        {
            "id": "call",
            "messages": [{"role": "user", "content": "Say\nhello"}],
            "tools": [{"name": "f\x07"}],
            "expected": "hello",
            "slices": {"lang": "en"},
        },
        {"id": "語", "prompt": "2 and 2 is", "expected": "4"},
    ]
    lines = [json.dumps(row | {"grader": {"kind": "exact"}}) + "\n" for row in rows]
    project.write("tasks/digits.jsonl", "".join(lines))
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 60"))
    project.lock()
    project.script.replies |= {"call": HOSTILE, "語": "4"}
    return project


def test_a_row_for_each_item(project: Project, typed: Type) -> None:
    project.run()
    said = typed("show", RUNS, "--suite", "digits")
    assert (said.code, said.err) == (0, "")
    assert said.out.split("\n") == [
        "item  suite   point    outcome  ending  tokens  why",
        f"call  digits  A@plain  wrong    eos         37  {WHY}",
        "語    digits  A@plain  right    eos          1",
        f"call  digits  B@plain  wrong    eos         37  {WHY}",
        "語    digits  B@plain  right    eos          1",
        "",
    ]


def test_an_item_with_all_its_answers(project: Project, typed: Type) -> None:
    project.run()
    said = typed("show", RUNS, "call")
    assert (said.code, said.err) == (0, "")
    answer = [
        " reply of 37 tokens, ending eos:",
        "  | \\x1b[31mB@plain: right",
        "  | A@plain: right\\u202e",
    ]
    assert said.out.split("\n") == [
        "call of the suite digits, lang en",
        "conversation, before the chat template:",
        " tool:",
        '  | {"name":"f\\u0007"}',
        " user:",
        "  | Say",
        "  | hello",
        f"A@plain: wrong: {WHY}",
        *answer,
        f"B@plain: wrong: {WHY}",
        *answer,
        "",
    ]


def test_a_prompt_that_is_continued(project: Project, typed: Type) -> None:
    project.run()
    assert typed("show", RUNS, "語", "--point", "A@plain").out.split("\n") == [
        "語 of the suite digits",
        "prompt, continued as it stands:",
        "  | 2 and 2 is",
        "A@plain: right",
        " reply of 1 token, ending eos:",
        "  | 4",
        "",
    ]


def test_a_window_of_a_text(project: Project, typed: Type) -> None:
    project.run()
    lines = typed("show", RUNS, "window-0001", "--point", "B@plain").out.split("\n")
    assert lines[:2] == [
        "window-0001 of the suite text",
        "64 tokens of a text, scored from number 34 on",
    ]
    assert lines[2].startswith("B@plain: ")
    assert lines[2].endswith(" nats over 31 tokens")
    assert lines[3].startswith(" 31 tokens cost ")
    assert lines[3].endswith(" each")


def test_a_divergence_from_the_reference() -> None:
    request = Diverge(tokens=(1, 2, 3), score_from=1, pieces=False)
    reply = Diverged(
        nats=(1.0, 2.0),
        reference_nats=(0.5, 2.0),
        kld_nats=(0.25, 0.5),
        reverse_kld_nats=(0.125, 0.5),
        same_top=(True, False),
        pieces=(),
    )
    assert [*module._request_lines(request), *module._reply_lines(reply)] == [
        "3 tokens of a text, held against the reference from number 2 on",
        " 2 tokens cost 3.0000 nats, 0.375000 nats each from the reference",
    ]
    bound = replace(reply, kld_slack_nats=(0.5, 0.5))
    assert list(module._reply_lines(bound)) == [
        " 2 tokens cost 3.0000 nats, at least 0.375000 nats each from the reference",
    ]


def a_trace(point: str, *, reply: Diverged | UnsetType) -> ItemSeen:
    request = Diverge(tokens=(5, 6, 7, 8), score_from=2, pieces=True)
    return ItemSeen(
        item="q1",
        suite="answers",
        point=point,
        repeat=1,
        slices={},
        outcome=Ungraded(why="not answered yet"),
        exchanges=(Exchange(request=request, reply=reply),),
    )


def test_a_trace_has_the_text_of_its_answer_once() -> None:
    reply = Diverged(
        nats=(1.0, 2.0),
        reference_nats=(1.0, 2.0),
        kld_nats=(0.0, 0.0),
        reverse_kld_nats=(0.0, 0.0),
        same_top=(True, True),
        pieces=("Hel\x1b", "lo\nyou"),
    )
    head = [
        "q1 of the suite answers",
        "a trace: a prompt of 2 tokens, kept as ids alone (--json shows them), and an answer of 2 tokens",
    ]
    text = ["  | Hel\\x1blo", "  | you"]
    cost = " 2 tokens cost 3.0000 nats, 0.000000 nats each from the reference"
    items = (a_trace("A@x", reply=UNSET), a_trace("B@x", reply=reply), a_trace("C@x", reply=reply))
    outcomes = [f"{item.point}: ungraded: not answered yet" for item in items]
    assert list(module._item_lines(items)) == [
        *head,
        *text,
        outcomes[0],
        outcomes[1],
        cost,
        outcomes[2],
        cost,
    ]
    assert list(module._item_lines(items[:1])) == [*head, outcomes[0]]


def test_loops_and_repeats(project: Project, typed: Type) -> None:
    project.write_spec(
        lambda text: text.replace("answer_tokens = 8", "answer_tokens = 90").replace(
            'kind = "tasks"', 'kind = "tasks"\nrepeats = 2\nmodels = ["A"]'
        )
    )
    project.lock()
    project.script.replies["語"] = "no " * 30
    project.run()
    assert typed("show", RUNS, "--suite", "digits", "--outcome", "wrong").out.split("\n")[:4:3] == [
        "item  suite   point    repeat  outcome  ending     tokens  why",
        f"call  digits  A@plain       2  wrong    eos            37  {WHY}",
    ]
    lines = typed("show", RUNS, "語").out.split("\n")
    assert [line.partition(":")[0] for line in lines if line.startswith("A@plain")] == [
        "A@plain",
        "A@plain, repeat 2",
    ]
    assert lines[3].endswith(", expected `4`, loops")


def test_an_item_without_an_answer(project: Project, typed: Type) -> None:
    project.script.replies["語"] = Broken(id="語", why="the engine\x1b died")
    project.run()
    name = next((project.path / RUNS).iterdir()).name
    note = f"note: `small@cpu-amd-1a-02/{name}` is not sealed: it is shown as far as it goes"
    said = typed("show", RUNS, "語", "--point", "A@plain")
    assert (said.code, said.talk) == (0, [note])
    assert said.out.split("\n")[3:] == [
        "A@plain: ungraded: the engine\\x1b died",
        " no reply: the engine\\x1b died",
        "",
    ]
    record = project.path / RUNS / name / "record" / "digits.A@plain.1.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:2]))
    said = typed("show", RUNS, "語", "--point", "A@plain")
    assert (said.code, said.talk) == (5, [note])
    assert said.out.split("\n")[-2:] == ["A@plain: ungraded: not answered yet", ""]


def test_what_is_said_beside_it(project: Project, typed: Type) -> None:
    project.run(task="A@plain", allow=("device",))
    said = typed("show", RUNS, "--suite", "digits", "--outcome", "right")
    assert said.code == 0
    assert said.talk[1:] == [
        "note: digits.B@plain.1: nothing was asked yet (2 items)",
        "note: 1 of 2 rows shown",
    ]
    task = next((project.path / RUNS).iterdir()) / "tasks" / "A@plain"
    assert typed("show", task, "--suite", "digits", "--ending", "budget").out == ""
    assert typed("show", task).talk == [
        "warning: FORCED: `device` was allowed to differ; no comparison with this run is valid"
    ]


def test_json_document(project: Project, typed: Type) -> None:
    project.run()
    table = json.loads(typed("show", RUNS, "--suite", "digits", "--json").out)
    assert (table["verb"], table["is_sealed"], len(table["items"])) == ("show", True, 4)
    assert "exchanges" not in table["items"][0]
    said = typed("show", RUNS, "call", "--point", "A@plain", "--json")
    assert said.out.isascii()
    (item,) = json.loads(said.out)["items"]
    assert (item["item"], item["outcome"]["kind"], item["ending"]) == ("call", "wrong", "eos")
    assert item["exchanges"][0]["reply"]["text"] == HOSTILE


def test_what_the_run_does_not_have(project: Project, typed: Type) -> None:
    project.run()
    said = typed("show", RUNS, "cal")
    assert (said.code, said.out) == (2, "")
    assert said.talk == ["error: the run has no item `cal`", "hint: did you mean `call`?"]


def test_no_run(locked: Project, typed: Type) -> None:
    assert typed("show", Path("nowhere")).code == 8
    assert typed("show", locked.lock_path).code == 6


def test_the_help_names_every_outcome_and_ending(project: Project, typed: Type) -> None:
    words = " ".join(typed("show", "--help").out.split())
    assert f"Only {', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]};" in words
    assert f"Only {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]};" in words
