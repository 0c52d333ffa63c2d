"""A project of `tests/fakes/project.py` with a suite that is held against the point `A@plain`.

What is not here: the numbers, which the engine in memory makes of both models' hashes.
"""

from __future__ import annotations

from pathlib import Path

from qlock.engines.interface import Keep
from tests.fakes.project import Project

KLD = """
[[suite]]
name = "distance"
kind = "kld"
text = "file:data/text.txt"
window_tokens = 64
windows = 3
"""
COMPARE = """
[compare]
reference = "A@plain"
"""


def add_kld(project: Project, *, traces: bytes = b"", more: str = "") -> Project:
    """The same project; its spec has the suite `distance`, on the text or on these traces.

    Args:
        project: Whose spec is written anew.
        traces: A file of traces.
        more: Further keys of the suite.
    """
    suite = KLD
    if traces:
        project.write("data/traces.jsonl", traces)
        suite = '\n[[suite]]\nname = "distance"\nkind = "kld"\ntraces = "file:data/traces.jsonl"\n'
    project.write_spec(lambda text: text + suite + more + COMPARE)
    return project


def stored(place: Path, *, tokens: int = 2) -> Project:
    """A project whose suite `distance` reads what the reference said from a file."""
    project = add_kld(Project(place, tokens=tokens), more="stored = true\n")
    project.lock()
    project.script.loads.clear()
    project.script.references.clear()
    return project


def kept_paths(project: Project) -> list[Path]:
    return sorted((project.runs / "references").glob("*.kld"))


def kept(project: Project) -> Path:
    """The one kept file."""
    (path,) = kept_paths(project)
    return path


def written(project: Project) -> list[int]:
    """Parts in the order in which they were asked for."""
    return [work.part for work in project.script.work if isinstance(work, Keep)]
