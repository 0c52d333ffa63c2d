"""`docs/github-actions.yml` says what the command line understands, and measures on a fixed machine alone."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]  # comes with huggingface_hub; nothing but this test reads YAML

from qlock.cli.main import verbs
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "github-actions.yml").read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, Any] = WORKFLOW["jobs"]
MEASURING = {"run", "resolve", "check", "fetch"}
"""Verbs that are about the machine they run on."""


def scripts(job: str) -> list[str]:
    """What the steps of a job have the shell do."""
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def commands(job: str) -> Iterator[list[str]]:
    """The words of every call of qlock in a job."""
    for line in "\n".join(scripts(job)).split("\n"):
        words = shlex.split(re.split(r"\|\||>|;", line)[0])
        if words[:1] == ["qlock"]:
            yield words[1:]


def test_every_command_is_one_that_qlock_understands() -> None:
    found = [words for job in JOBS for words in commands(job)]
    every = "\n".join(script for job in JOBS for script in scripts(job))
    assert len(found) == len(re.findall(r"(?<![\w/.-])qlock [a-z]", every))
    for words in found:
        command = verbs.get_command(click.Context(verbs), words[0])
        assert command is not None, words
        context = click.Context(command, info_name=words[0])
        command.make_parser(context).parse_args(words[1:])


def test_a_command_that_it_does_not_understand_would_be_found() -> None:
    command = verbs.get_command(click.Context(verbs), "diff")
    assert command is not None
    with pytest.raises(click.NoSuchOption):
        command.make_parser(click.Context(command)).parse_args(["run", "--formt", "markdown"])


def test_locks_are_checked_runs_verified_and_the_report_posted() -> None:
    verbs_of = {job: [words[0] for words in commands(job)] for job in JOBS}
    assert verbs_of == {
        "locks": ["plan", "diff"],
        "measure": ["fetch", "resolve", "check", "run"],
        "report": ["verify", "diff"],
    }
    assert "--format markdown" in scripts("report")[-1]


@pytest.mark.parametrize("job", JOBS)
def test_only_a_fixed_machine_measures(job: str) -> None:
    is_fixed = "self-hosted" in JOBS[job]["runs-on"]
    assert is_fixed == any(words[0] in MEASURING for words in commands(job))
    if is_fixed:
        # What strangers propose is not run there.
        assert JOBS[job]["if"] == "github.event.pull_request.head.repo.full_name == github.repository"


def test_nothing_is_allowed_that_is_not_needed_and_actions_are_pinned() -> None:
    assert WORKFLOW["permissions"] == {}
    allowed = {job: JOBS[job]["permissions"] for job in JOBS}
    assert allowed == {
        "locks": {"contents": "read"},
        "measure": {"contents": "read"},
        "report": {"pull-requests": "write"},
    }
    used = re.findall(r"uses: (\S+)( # v[0-9.]+)?", TEXT)
    assert used
    for action, version in used:
        assert re.fullmatch(r"[a-z-]+/[a-z-]+@[0-9a-f]{40}", action)
        assert version


@pytest.mark.parametrize("job", JOBS)
def test_bash_reads_every_script(job: str) -> None:
    for script in scripts(job):
        assert "${{" not in script  # text of others never becomes part of a script
        done = subprocess.run(["bash", "-n", "-c", script], check=False, capture_output=True)
        assert done.returncode == 0, (script, done.stderr)
