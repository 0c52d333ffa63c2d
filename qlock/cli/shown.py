"""What the command line says: talk on stderr, an answer on stdout.

Lives here: the shapes of talk (labelled lines, tables, findings) and of answers, and the one way that text takes to
a terminal (``core.escape``). Does not live here: progress (``cli.progress``), and what any verb has to say.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.core.verify import Finding
    from qlock.engines.interface import Engine
    from qlock.flows.anchors import AnchorCheck
    from qlock.flows.scores import JobScore
    from qlock.world.interface import World

_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan", "note": "blue", "ok": "green"}
_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
"""What Python keeps a byte of a path as that is not UTF-8 (PEP 383), and how people know that byte."""
_MOST_CHARACTERS = 1 << 24
"""Of one answer or line; what is longer loses its middle."""


class Answer(NamedTuple):
    """How a verb ends: its exit code, and what belongs on stdout."""

    code: ExitCode
    data: str = ""


class Talk:
    """Lines for people.

    Args:
        stream: Usually stderr.
        environment: ``NO_COLOR`` (not empty) and ``TERM=dumb`` are kept to.
    """

    def __init__(self, stream: TextIO, environment: Mapping[str, str]) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = (
            self.is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        )

    def line(self, text: str = "") -> None:
        """A line without a label."""
        self._put(_one_line(text))

    def say(self, label: str, text: str) -> None:
        """A line behind a label, such as ``error: …``."""
        self._put(f"{self._styled(f'{label}:', label)} {_one_line(text)}")

    def verb(self, word: str, text: str) -> None:
        """A line whose first word says what was or would be done: ``Added model Q4_K_M``."""
        self._put(f"{self._bold(word)} {_one_line(text)}")

    def findings(self, findings: Iterable[Finding], *, allowed: Callable[[Finding], bool]) -> None:
        """A block for each finding: where, what was expected and found, why, and what to do."""
        labels = {"output": "error", "timing": "warning", "note": "note"}
        for finding in findings:
            forced = allowed(finding)
            label = "warning" if forced else labels[finding.effect]
            mark = " (forced with --allow)" if forced else ""
            self.say(label, f"{finding.where} is not as locked ({finding.rule}){mark}")
            self.rows(
                ("changed", finding.change),
                ("expected", "" if finding.parts else finding.expected),
                ("found", "" if finding.parts else finding.found),
                ("why", finding.why),
                ("hint", "" if forced else finding.remedy),
            )

    def anchors(self, checks: Iterable[AnchorCheck]) -> None:
        """A line for each published score: what came out here."""
        for check in checks:
            self.say(
                "ok" if check.holds else "error",
                f"anchor {check.model} {check.suite}: got `{check.found:.4f}`, "
                f"expected `{check.published}` ± {check.tolerance}",
            )

    def rows(self, *rows: tuple[str, str]) -> None:
        """Indented pairs; those without a value are left out."""
        for name, value in rows:
            if value:
                self._put(f"  {f'{name}:':<9} {_one_line(value)}")

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        """Columns under their names; ``right`` numbers those that end flush."""
        from qlock.core.columns import aligned

        lines = aligned([[_one_line(cell) for cell in row] for row in (head, *rows)], right=right)
        self._put(self._bold(lines[0]))
        for text in lines[1:]:
            self._put(text)

    def _styled(self, text: str, label: str) -> str:
        return click.style(text, fg=_COLOURS.get(label), bold=True) if self.has_colour else text

    def _bold(self, text: str) -> str:
        return click.style(text, bold=True) if self.has_colour else text

    def _put(self, text: str) -> None:
        """Nothing that is said is worth stopping for: a full disk or a listener that went away ends the talk alone."""
        try:
            click.echo(text, file=self.stream, color=self.has_colour)
        except OSError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        """Lead the stream nowhere, so that neither bars nor Python's own flush at the end fail on it again."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


class Means(NamedTuple):
    """What a verb works with: the world, a way to open engines by kind, and somebody to talk to."""

    world: Callable[[], World]
    """Built when first asked for, so that ``--help`` builds none."""
    opener: Callable[[str], Callable[..., Engine]]
    talk: Talk


def real_means() -> Means:
    """This machine, the real engines, and stderr."""
    import functools

    talk = Talk(sys.stderr, os.environ)

    def world() -> World:
        from qlock.world.real import real_world

        return real_world(announce=lambda words: talk.say("note", words))

    def opener(kind: str) -> Callable[..., Engine]:
        from qlock.flows.kinds import engine_opener

        return engine_opener(kind)

    return Means(world=functools.cache(world), opener=opener, talk=talk)


def document(value: Mapping[str, Any]) -> str:
    """One JSON document in ASCII, so that nothing in it can move a terminal.

    Raises:
        ValueError: A number is no number.
    """
    import json

    import msgspec

    plain = msgspec.to_builtins(value, enc_hook=_plain)
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def say_distances(talk: Talk, scores: Iterable[JobScore]) -> None:
    """What is to be known of all distances from a reference, in a few lines."""
    from msgspec import UNSET

    from qlock.reports.interface.distance import distances_brief

    found = [(job.job, job.distance) for job in scores if job.distance is not UNSET]
    for told in distances_brief(found):
        talk.say("note", told)


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """Findings for a document, each with what to do about it."""
    import msgspec

    return [{**msgspec.structs.asdict(finding), "hint": finding.remedy} for finding in findings]


def _plain(value: object) -> str:
    match value:
        case Path():
            return str(value)
        case _:
            raise NotImplementedError(f"no JSON for `{type(value).__name__}`")


def readable(text: str) -> str:
    """Text of several lines for stdout, every hidden character but the line feeds written out."""
    from qlock.core.escape import for_terminal

    return for_terminal(text, limit=_MOST_CHARACTERS)


def data_line(text: str) -> str:
    """A line of stdout, such as a path: one line, whatever is in it."""
    return f"{_one_line(text)}\n"


def whole_path(world: World, path: Path) -> Path:
    """A path of the command line as an absolute one; links in it stay links, so that files keep their names."""
    import os.path

    return Path(os.path.normpath(world.cwd / path))


def project_path(world: World, path: Path) -> Path:
    """The whole path of a spec, lock or run of the command line, in the project that it belongs to."""
    from qlock.flows.places import own_place

    return own_place(world.cwd / path)


def short_path(world: World, path: Path) -> str:
    """A path as people would type it here."""
    return str(path.relative_to(world.cwd)) if path.is_relative_to(world.cwd) else str(path)


def offline(world: World) -> World:
    """The same world for ``--offline``: nothing in it makes a request."""
    import msgspec

    return msgspec.structs.replace(
        world,
        environment={**world.environment, "HF_HUB_OFFLINE": "1"},
        hub=world.hub.offline(),
        remote=world.remote.offline(),
    )


def counted(tasks: int) -> str:
    """``1 task``, ``2 tasks``."""
    return "1 task" if tasks == 1 else f"{tasks} tasks"


def _one_line(text: str) -> str:
    from qlock.core.escape import for_terminal

    return for_terminal(text.translate(_BYTES), newlines="arrow")
