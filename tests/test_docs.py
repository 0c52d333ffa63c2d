"""`docs/spec.md` says every key there is, with its default, and its examples do what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import get_args

import msgspec
import pytest
from msgspec import NODEFAULT, UNSET

from qlock.core.base import Base
from qlock.core.exchange import Right
from qlock.core.rules import GateSpec, Rule
from qlock.core.sbatch import SlurmSpec
from qlock.core.spec import (
    AnchorSpec,
    CompareSpec,
    DeviceSpec,
    EngineSpec,
    ModelSpec,
    PointSpec,
    PromptSpec,
    SamplingSpec,
    SettingSpec,
    Spec,
    SuiteSpec,
    read_spec,
)
from qlock.core.stats import fewest_to_pass
from qlock.core.validity import Treatment
from qlock.flows.kinds import members, params_of, suite_kind
from qlock.suites import tasks
from qlock.suites.interface import play_back
from qlock.suites.tasks.graders import KINDS, Grader
from qlock.suites.tasks.rows import Row
from qlock.suites.tasks.thinking import Thinking
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
Table = dict[str, str]
"""First cell to third: key to default."""

STRUCTS: dict[str, type[Base]] = {
    "Top level": Spec,
    "Engine": EngineSpec,
    "Device": DeviceSpec,
    "Models": ModelSpec,
    "Settings": SettingSpec,
    "Suites": SuiteSpec,
    "Sampling": SamplingSpec,
    "Prompts": PromptSpec,
    "The items file": Row,
    "Points": PointSpec,
    "Anchors": AnchorSpec,
    "Comparison": CompareSpec,
    "Slurm": SlurmSpec,
}
GRADERS = {f"Grader `{kind}`": grader for kind, grader in zip(KINDS, get_args(Grader), strict=True)}
SUITES = {f"The suite `{kind}`": suite_kind(kind).params for kind in members("qlock.suites")}
NOT_WRITTEN = {"Suites": {"params"}}
"""Fields that are no keys."""


def section(title: str) -> str:
    """What stands under a heading, down to the next one of any depth."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/spec.md has no heading `{title}`"
    return found[1]


def tables(text: str) -> Iterator[Table]:
    """Every table whose rows begin with a name in backticks."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()[2:]]
        yield {row[0].strip("| `"): row[2].strip() if len(row) > 2 else "" for row in rows}


def shown(field: msgspec.structs.FieldInfo) -> str:
    """A default as the tables say it."""
    if field.default_factory is not NODEFAULT:
        return "`{}`"
    match field.default:
        case value if value is NODEFAULT:
            return "required"
        case value if value is UNSET:
            return "none"
        case Base():
            return "its defaults"
        case value:
            plain = list(value) if isinstance(value, tuple) else value
            return f"`{json.dumps(plain)}`"


@pytest.mark.parametrize("title", [*STRUCTS, *SUITES, *GRADERS])
def test_every_key_is_there_with_its_default(title: str) -> None:
    struct = (STRUCTS | SUITES | GRADERS)[title]
    fields = msgspec.structs.fields(struct)
    expected = {
        field.encode_name: shown(field) for field in fields if field.name not in NOT_WRITTEN.get(title, ())
    }
    assert next(tables(section(title)), {}) == expected


def test_the_keys_of_thinking_are_there_with_their_defaults() -> None:
    second = list(tables(section("The suite `tasks`")))[1]
    assert second == {field.name: shown(field) for field in msgspec.structs.fields(Thinking)}


def test_every_key_of_a_gate_is_there_with_its_default() -> None:
    rules = [msgspec.structs.fields(rule) for rule in get_args(GateSpec)]
    expected = {"rule": "required"}
    for field in (field for fields in rules for field in fields):
        is_everywhere = all(field.encode_name in [other.encode_name for other in fields] for fields in rules)
        is_required = shown(field) == "required" and not is_everywhere
        default = "required by rules that have it" if is_required else shown(field)
        assert expected.setdefault(field.encode_name, default) == default
    assert next(tables(section("Gates"))) == expected


def test_every_rule_of_a_gate_is_there_with_its_keys() -> None:
    keys = {str(rule.__struct_config__.tag): rule.__struct_encode_fields__ for rule in get_args(GateSpec)}
    suites = {kind: suite_kind(kind).gates for kind in members("qlock.suites")}
    expected = [
        (f"`{rule}`", quoted(keys[rule]), quoted(kind for kind in sorted(suites) if rule in suites[kind]))
        for rule in get_args(Rule)
    ]
    second = re.findall(r"(?:^\|.*\n)+", section("Gates"), re.MULTILINE)[1]
    rows = [[cell.strip() for cell in line.split("|")] for line in second.splitlines()[2:]]
    assert [tuple(row[1:4]) for row in rows] == expected
    assert set(keys) == set(get_args(Rule))


def quoted(names: Iterable[str]) -> str:
    """Names as a cell lists them."""
    return ", ".join(f"`{name}`" for name in names)


def test_every_treatment_is_there() -> None:
    assert set(list(tables(section("Comparison")))[1]) == set(get_args(Treatment))


@pytest.mark.parametrize("title", GRADERS)
def test_the_examples_of_a_grader_are_read_and_tell_gold_from_bad(title: str) -> None:
    found = re.search(r"```json\n(.*?)```", section(title), re.DOTALL)
    assert found is not None
    params = tasks.Params(items="file:tasks/own.jsonl")
    items = tasks.items({"items": found[1].encode()}, params, lambda _: ())
    assert len(items) == 2
    trials = tasks.trials(items, params)
    assert {trial.passes for trial in trials} == {True, False}
    for trial in trials:
        answer = play_back(tasks.ask(trial.item, params), trial.replies)
        outcome = tasks.grade(trial.item, answer, params)
        assert (outcome == Right()) is trial.passes, outcome


@pytest.mark.parametrize("text", [section("The items file"), README], ids=["spec", "readme"])
def test_the_examples_of_items_are_read_a_conversation_first(text: str) -> None:
    found = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert found is not None
    rows = [json.loads(line) for line in found[1].splitlines()]
    assert [{"messages", "prompt"} & row.keys() for row in rows] == [{"messages"}, {"prompt"}]
    items = tasks.items({"items": found[1].encode()}, tasks.Params(items="file:own.jsonl"), lambda _: ())
    assert [item.id for item in items] == [row["id"] for row in rows]


def test_the_readme_says_how_many_items_a_margin_takes() -> None:
    flat = " ".join(README.split())
    assert f"A margin of 0.02 takes {fewest_to_pass(0.02)} items or more" in flat
    assert f"even where nothing differs; 0.1 takes {fewest_to_pass(0.1)}." in flat


def test_the_suites_of_the_readme_are_read() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    suites = [block for block in blocks if block.startswith("[[suite]]")]
    whole = blocks[0] + "".join(f"\n{suite}" for suite in suites)
    spec = read_spec(whole.encode(), name="readme")
    for suite in spec.suite:
        params_of(suite_kind(suite.kind), suite, where=suite.name)
    assert [suite.kind for suite in spec.suite] == ["perplexity", "tasks", "kld", "kld"]


def test_every_link_inside_leads_somewhere() -> None:
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= anchors
