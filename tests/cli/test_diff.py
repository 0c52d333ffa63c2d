"""`qlock diff`: how comparisons are asked for and shown, and the exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from qlock.cli.diff import FORMATS, TREATMENTS, verb
from qlock.core.validity import Treatment
from qlock.flows.kinds import members
from tests.cli.conftest import Type
from tests.fakes.project import Project
from tests.fakes.world import CPU, FixedHost

COMPARE = '\n[compare]\nreference = "A@plain"\n'
GATE = '\n[[gate]]\nsuite = "digits"\nrule = "no-more-errors"\n'


def a_run(project: Project, more: str) -> str:
    project.write_spec(lambda text: text + more)
    project.lock()
    folder = project.run().folder
    assert folder is not None
    return folder.relative_to(project.path).as_posix()


def test_the_points_of_one_run_against_the_reference(project: Project, typed: Type) -> None:
    said = typed("diff", a_run(project, COMPARE))
    assert said.code == 0
    assert said.out.startswith("VALID: B@plain (B) against A@plain (A); meant to differ: weights\n")
    assert said.err == ""


def test_the_help_names_every_choice() -> None:
    assert sorted(FORMATS.replace(" or ", ", ").split(", ")) == list(members("qlock.reports"))
    assert TREATMENTS.replace(" or ", ", ").split(", ") == list(get_args(Treatment))
    helps = {option.name: getattr(option, "help", "") for option in verb.params}
    assert FORMATS in helps["format"]
    assert TREATMENTS in helps["treatment"]


def test_a_gate_that_is_not_passed_is_no(project: Project, typed: Type) -> None:
    said = typed("diff", a_run(project, COMPARE + GATE))
    assert said.code == 1
    assert said.talk == ["error: B@plain: gate no-more-errors of digits: fail: 8 errors against 7, 8 pairs"]


def test_what_may_not_be_compared_is_said_and_shown(project: Project, typed: Type) -> None:
    run = a_run(project, COMPARE)
    said = typed("diff", run, "--treatment", "kv")
    assert said.code == 4
    assert said.out.startswith("INVALID: ")
    assert len(said.talk) == 2
    assert said.talk[0].startswith("error: B@plain against A@plain: invalid: confound: ")
    assert said.talk[-1] == (
        "hint: compare points that differ in nothing else, or say --treatment weights if that is meant to differ"
    )
    assert typed("diff", run, "--treatment", "weights").code == 0


def test_no_treatment_is_named_where_none_would_help(project: Project, typed: Type) -> None:
    run = a_run(project, COMPARE)
    project.write_spec(lambda text: text.replace("slots = 4", "slots = 2") + COMPARE)
    project.lock(upgrade=("all",))
    other = project.run().folder
    assert other is not None
    for words in ((), ("--treatment", "kv")):
        said = typed("diff", run, other, *words)
        treatment = words[1] if words else "weights"
        assert said.code == 4
        assert "confound: setting.slots" in said.talk[0]
        assert said.talk[-1] == (
            f"hint: compare points that differ in {treatment} alone; no --treatment covers what differs here"
        )


def test_a_forced_run_is_run_again(project: Project, typed: Type) -> None:
    project.write_spec(lambda text: text + COMPARE)
    project.lock()
    forced = project.run(allow=("device",)).folder
    assert forced is not None
    said = typed("diff", forced)
    assert (said.code, said.talk[-1]) == (4, "hint: run the lock again without --allow")


def test_json_is_a_ladder_also_of_one_comparison(project: Project, typed: Type) -> None:
    run = a_run(project, COMPARE)
    said = typed("diff", run, "--json")
    whole = json.loads(said.out)
    (comparison,) = whole["comparison"]
    assert (said.code, comparison["state"], comparison["b"]["point"]) == (0, "valid", "B@plain")
    assert [rung["name"] for rung in whole["rung"]] == ["A@plain", "B@plain"]
    assert typed("diff", run, "--format", "json").out == said.out


def test_markdown(project: Project, typed: Type) -> None:
    said = typed("diff", a_run(project, COMPARE), "--format", "markdown")
    assert said.code == 0
    assert "| " in said.out


@pytest.mark.parametrize(
    "name, shown", [(b"a\nb.txt", "a↵b.txt"), (b"a\xff.txt", "a\\xff.txt"), (b"a\x1b[2J", "a\\x1b[2J")]
)
def test_the_name_of_a_file_is_printed_on_one_line(
    project: Project, typed: Type, *, name: bytes, shown: str
) -> None:
    said = typed("diff", a_run(project, COMPARE), "-o", os.fsdecode(name))
    assert (said.code, said.out) == (0, f"{shown}\n")
    assert (project.path / os.fsdecode(name)).is_file()


def test_a_file_instead_of_stdout(project: Project, typed: Type) -> None:
    run = a_run(project, COMPARE)
    said = typed("diff", run, "--output", "out/report.txt")
    assert (said.code, said.out) == (0, "out/report.txt\n")
    assert (project.path / "out/report.txt").read_text() == typed("diff", run).out


@pytest.mark.parametrize(
    "words, said",
    [
        (["--format", "pdf"], "error: got format `pdf`, expected one of: "),
        (
            ["--json", "--format", "markdown"],
            "error: got both --json and --format markdown, expected one of them",
        ),
    ],
)
def test_a_way_of_showing_that_there_is_not(
    project: Project, typed: Type, words: list[str], said: str
) -> None:
    answer = typed("diff", Path("nowhere"), *words)
    assert answer.code == 2
    assert answer.err.startswith(said)


def test_a_run_that_is_not_there(typed: Type) -> None:
    said = typed("diff", "nowhere")
    assert said.code == 8
    assert said.talk[0] == "error: there is no run at `nowhere`"


def test_two_runs_of_one_lock_are_each_others_noise(project: Project, typed: Type) -> None:
    run = a_run(project, COMPARE)
    project.world.clock.sleep_s(60)
    again = typed("run", project.lock_path, "--repeat-lock").out.strip()
    said = typed("diff", f"{run}:A@plain", f"{run}:B@plain", "--noise", again)
    assert said.code == 0


def test_many_points_are_a_ladder(project: Project, typed: Type) -> None:
    run = a_run(project, COMPARE)
    said = typed("diff", run, "--at-most-gb", "1")
    assert said.code == 0
    assert said.out.startswith("Ladder of digits\n  best at or under 1.0 GB: ")
    assert "\nVALID: B@plain (B) against A@plain (A)" in said.out
    project.world.clock.sleep_s(60)
    again = typed("run", project.lock_path, "--repeat-lock").out.strip()
    assert typed("diff", run, again, "--reference", "A@plain").out.startswith("Ladder of digits\n  point ")


def test_the_best_at_or_under_a_size_is_in_json_too(project: Project, typed: Type) -> None:
    said = typed("diff", a_run(project, COMPARE), "--json", "--at-most-gb", "1")
    whole = json.loads(said.out)
    assert (said.code, whole["at_most_bytes"]) == (0, 1_000_000_000)
    assert [best["candidates"] for best in whole["best"]] == [2, 2]


@pytest.mark.parametrize("size", ["nan", "inf", "1e300", "0", "-1"])
def test_a_size_that_none_is(project: Project, typed: Type, size: str) -> None:
    said = typed("diff", project.path, "--at-most-gb", size)
    assert said.code == 2
    assert said.err.startswith(
        f"error: invalid value for '--at-most-gb': got `{float(size):g}`, expected a number above 0, at most 1e+09\n"
    )


def test_an_output_of_too_long_a_name(project: Project, typed: Type) -> None:
    said = typed("diff", a_run(project, COMPARE), "--output", 300 * "a")
    assert (said.code, said.err) == (6, f"error: path `{project.path}/{300 * 'a'}` has too long a name\n")


def test_points_of_two_devices_are_described_through_a_bridge(project: Project, typed: Type) -> None:
    here = a_run(project, COMPARE)
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="AMD EPYC 2")))
    project.lock_path.unlink()
    there = a_run(project, "")
    plain = typed("diff", f"{here}:A@plain", f"{there}:B@plain")
    assert (plain.code, plain.talk[-1]) == (
        4,
        (
            "hint: compare points of one device, or describe the way with a point that was run on both: "
            "--bridge POINT"
        ),
    )
    said = typed("diff", here, f"{there}:A@plain", "--bridge", "B@plain")
    assert said.code == 4
    assert "\nBridge\n  `B@plain` was run on both devices, " in said.out
    assert said.talk[-1] == "hint: measure both points on one device: a bridge only describes"
    whole = json.loads(typed("diff", here, f"{there}:A@plain", "--bridge", "B@plain", "--json").out)
    (comparison,) = whole["comparison"]
    assert [len(span["stop"]) for span in comparison["bridge"]["span"]] == [4, 4]


@pytest.mark.parametrize("name, start", [("html", "<!doctype html>"), ("junit", "<?xml ")])
def test_a_page_and_a_list_of_cases(project: Project, typed: Type, name: str, start: str) -> None:
    said = typed("diff", a_run(project, COMPARE), "--format", name, "--output", f"out/report.{name}")
    assert (said.code, said.out) == (0, f"out/report.{name}\n")
    assert (project.path / f"out/report.{name}").read_text().startswith(start)


@pytest.mark.parametrize("name", ["html", "json", "junit", "markdown", "text"])
def test_a_report_replaces_a_report_and_nothing_else(project: Project, typed: Type, name: str) -> None:
    run = a_run(project, COMPARE)
    for words in ([run], [f"{run}:A@plain", f"{run}:B@plain"], [run, "--at-most-gb", "1"]):
        assert typed("diff", *words, "--format", name, "--output", "report").code in (0, 1, 4)
    before = project.lock_path.read_bytes()
    said = typed("diff", run, "--format", name, "--output", project.lock_path)
    assert said.code == 2
    assert said.talk == [
        f"error: `{project.lock_path}` is already there, and this command did not write it",
        "hint: name another file",
    ]
    assert project.lock_path.read_bytes() == before
