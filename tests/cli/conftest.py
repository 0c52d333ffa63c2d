"""Command lines typed in a small project, with an engine in memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from qlock.cli.main import exit_code
from qlock.cli.shown import Means, Talk
from tests.fakes.project import Project


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def talk(self) -> list[str]:
        return self.err.split("\n")[:-1]


Type = Callable[..., Said]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def locked(project: Project) -> Project:
    """The project with its lock."""
    project.lock()
    return project


@pytest.fixture
def typed(project: Project, capsysbinary: pytest.CaptureFixture[bytes]) -> Type:
    """Types a command line in the project's folder."""

    def type_line(*words: str | Path) -> Said:
        stream = io.StringIO()
        means = Means(
            world=lambda: project.world,
            opener=lambda _: project.script.open_engine,
            talk=Talk(stream, environment={}),
        )
        capsysbinary.readouterr()
        code = exit_code([str(word) for word in words], means)
        return Said(code=code, out=capsysbinary.readouterr().out.decode(), err=stream.getvalue())

    return type_line
