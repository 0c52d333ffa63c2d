"""Gates that no run can decide are refused when the spec is resolved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qlock.core.rules import Kld, MemoryAtMost, NoMoreErrors, SpeedAtLeast
from qlock.errors import InputError
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, refusal

COMPARE = '\n[compare]\nreference = "A@plain"\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Questions of two banks, the last of them of a third; `x` is a value of two slices."""
    project = Project(tmp_path)
    slices = [{"bank": "x", "tone": "dry"}, {"bank": "y", "tone": "x"}, {"bank": "z", "tone": "dry"}]
    project.write(
        "tasks/digits.jsonl",
        "".join(
            json.dumps(
                {
                    "id": f"q{n}",
                    "prompt": f"{n}?",
                    "expected": str(n),
                    "grader": {"kind": "exact"},
                    "slices": one,
                }
            )
            + "\n"
            for n, one in enumerate(slices)
        ),
    )
    return project


def gated(project: Project, suite: str, rule: str, slice_: str = "", more: str = "") -> None:
    line = f'slice = "{slice_}"\n' if slice_ else ""
    gate = f'{COMPARE}\n[[gate]]\nsuite = "{suite}"\nrule = "{rule}"\n{line}'
    project.write_spec(lambda text: text.replace('kind = "tasks"\n', f'kind = "tasks"\n{more}') + gate)


@pytest.mark.parametrize("slice_", ["", "bank=x", "y", "bank=z", "tone=x", "dry"])
def test_a_gate_that_can_be_decided_is_locked(project: Project, slice_: str) -> None:
    gated(project, "digits", "no-more-errors", slice_)
    assert project.resolve().lock.gate == (NoMoreErrors(suite="digits", slice=slice_),)


@pytest.mark.parametrize("rule", ["non-inferior", "no-more-errors", "ending-share", "agreement-share"])
def test_of_a_text_nothing_but_the_speed_can_be_decided(project: Project, rule: str) -> None:
    gated(project, "text", rule)
    assert refusal(project, InputError) == (
        (
            f"gate.text.rule: got `{rule}`, expected one of: speed-at-least: "
            "a suite of the kind `perplexity` cannot decide it"
        ),
        "",
    )
    assert project.script.opened == 0


def test_of_a_distance_no_speed_can_be_decided(project: Project) -> None:
    add_kld(project, more='[[gate]]\nsuite = "distance"\nrule = "speed-at-least"\nat_least_ratio = 0.9\n')
    assert refusal(project, InputError)[0] == (
        "gate.distance.rule: got `speed-at-least`, expected one of: kld: a suite of the kind `kld` cannot decide it"
    )


def test_speed_and_memory_are_locked(project: Project) -> None:
    gates = '[[gate]]\nrule = "memory-at-most"\nat_most_bytes = 6_000_000_000\n'
    gates += '[[gate]]\nrule = "speed-at-least"\nsuite = "text"\nat_least_ratio = 0.9\n'
    project.write_spec(lambda text: f"{text}{COMPARE}{gates}")
    assert project.resolve().lock.gate == (
        MemoryAtMost(at_most_bytes=6_000_000_000),
        SpeedAtLeast(suite="text", at_least_ratio=0.9),
    )


@pytest.mark.parametrize("keys, floor", [("", "1e-06"), ("stored = true\n", "5e-05")])
@pytest.mark.parametrize("prove", [True, False])
def test_a_margin_that_cannot_be_told_from_nothing_is_refused(
    project: Project, keys: str, floor: str, *, prove: bool
) -> None:
    gate = '[[gate]]\nsuite = "distance"\nrule = "kld"\nmargin_nats = '
    add_kld(project, more=f"{keys}{gate}9e-7\n")
    assert refusal(project, InputError, prove=prove) == (
        (
            f"gate.distance.margin_nats: got `9e-07`, expected at least `{floor}`: "
            "a smaller divergence cannot be told from 0 as this suite measures it"
        ),
        "",
    )
    assert project.script.opened == 0
    project.write_spec()
    add_kld(project, more=f"{keys}{gate}{floor}\n")
    assert project.resolve(prove=prove).lock.gate == (Kld(suite="distance", margin_nats=float(floor)),)


@pytest.mark.parametrize(
    "slice_, message, hint",
    [
        (
            "bank=q",
            ("no item lies in the slice `bank=q`, expected one of: bank=x, bank=y, bank=z, tone=dry, tone=x"),
            "did you mean `bank=z`?",
        ),
        (
            "nothing like it",
            (
                "no item lies in the slice `nothing like it`, expected one of: "
                "bank=x, bank=y, bank=z, tone=dry, tone=x"
            ),
            "",
        ),
        ("x", "`x` could be any of bank=x, tone=x", "name the slice as NAME=VALUE"),
    ],
)
@pytest.mark.parametrize("prove", [True, False])
def test_a_slice_without_items_is_refused_with_those_that_have_some(
    project: Project, slice_: str, message: str, hint: str, *, prove: bool
) -> None:
    gated(project, "digits", "no-more-errors", slice_)
    assert refusal(project, InputError, prove=prove) == (f"gate.digits.slice: {message}", hint)
    assert project.script.opened == 0


def test_items_beyond_the_limit_are_not_asked_and_make_no_slice(project: Project) -> None:
    gated(project, "digits", "no-more-errors", "bank=z", "limit = 2\n")
    message, _ = refusal(project, InputError)
    assert message == (
        "gate.digits.slice: no item lies in the slice `bank=z`, expected one of: "
        "bank=x, bank=y, tone=dry, tone=x"
    )


def test_items_without_slices_have_none_to_name(project: Project) -> None:
    row = {"id": "q", "prompt": "?", "expected": "1", "grader": {"kind": "exact"}}
    project.write("tasks/digits.jsonl", json.dumps(row) + "\n")
    gated(project, "digits", "no-more-errors", "\\u001b[2K")
    assert refusal(project, InputError) == (
        "gate.digits.slice: got `\\x1b[2K`, but the items have no slices",
        "",
    )


def test_of_many_slices_the_first_ten_are_told(project: Project) -> None:
    rows = [
        {
            "id": f"q{n:02}",
            "prompt": "?",
            "expected": "1",
            "grader": {"kind": "exact"},
            "slices": {"n": f"{n:02}"},
        }
        for n in range(12)
    ]
    project.write("tasks/digits.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    gated(project, "digits", "no-more-errors", "??")
    told = ", ".join(f"n={n:02}" for n in range(10))
    assert refusal(project, InputError)[0] == (
        f"gate.digits.slice: no item lies in the slice `??`, expected one of: {told} and 2 more"
    )


def test_a_fault_in_the_items_is_said_with_their_file(project: Project) -> None:
    project.write("tasks/digits.jsonl", "{\n")
    gated(project, "digits", "no-more-errors", "bank=x")
    assert refusal(project, InputError)[0].startswith("tasks/digits.jsonl: line 1: not JSON: ")
