"""``qlock diff``: its options, what it says, and its exit code.

Does not live here: comparing (``flows.diff``) and showing a comparison (``reports``, each found by its name).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.shown import Answer, Means, data_line, short_path, whole_path
from qlock.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from qlock.core.comparison import Comparison


FORMATS = "html, json, junit, markdown or text"
TREATMENTS = "weights, kv, context, template or sampling"

_MOST_GB = 1e9
_OURS = re.compile(
    rb'<!doctype html>\n<html lang="en"><head>|<\?xml [^\n]*\n<testsuites name="qlock diff"|'
    rb'\{"(?:ladder|comparison)_version":|## \d+ comparisons?\n|Ladder of |'
    rb"(?:## \S+ )?(?:VALID|INVALID|INCOMPLETE): "
)
"""How a report begins, whatever its format: such a file is replaced by a newer one."""


class Line(NamedTuple):
    """The command line."""

    left: str
    right: str | None
    reference: str | None
    treatment: str | None
    noise: tuple[str, ...]
    bridge: str | None
    format: str
    as_json: bool
    at_most_gb: float | None
    output: Path | None


def _size_gb(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """A size that there can be; click's own ranges let NaN through."""
    if value is None or 0 < value <= _MOST_GB:
        return value
    raise click.BadParameter(f"got `{value:g}`, expected a number above 0, at most {_MOST_GB:g}")


@click.command("diff")
@click.argument("left", metavar="A")
@click.argument("right", metavar="[B]", required=False)
@click.option(
    "--reference",
    metavar="POINT",
    help="The point that others are compared with; without it, the spec's [compare] says.",
)
@click.option(
    "--treatment",
    metavar="NAME",
    help=f"What is meant to differ: {TREATMENTS}; weights unless the spec says.",
)
@click.option(
    "--noise",
    multiple=True,
    metavar="RUN",
    help="A further run of the same lock, by `qlock run --repeat-lock`: how far two runs of a point differ.",
)
@click.option(
    "--bridge",
    metavar="POINT",
    help="A point that was run on both devices, where A and B were measured on two.",
)
@click.option(
    "--format", default="text", show_default=True, metavar="NAME", help=f"How to show it: {FORMATS}."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; as --format json.")
@click.option(
    "--at-most-gb",
    type=float,
    callback=_size_gb,
    metavar="N",
    help="Name the best point whose weights take N GB (10^9 bytes) or less.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Write it to a file instead."
)
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Compare points, where they may be compared.

    A and B are RUN or RUN:POINT, or locks, to see what differs before anything is run. With one run, each point is
    compared with the reference, and several points are shown in one view, the ladder. With two runs, points of the
    same name are compared. Exits with 4 when more differs than is meant to, with 1 when a gate fails or cannot be
    decided. Points of two devices are never compared; with --bridge the way between them is described in three steps.
    """
    return _diff(means, Line(**given))


def _diff(means: Means, line: Line) -> Answer:
    from qlock.core.comparison import exit_code_of
    from qlock.flows import diff as flow

    if line.as_json and line.format not in {"text", "json"}:
        raise UsageError(f"got both --json and --format {line.format}, expected one of them")
    name = "json" if line.as_json else line.format
    report = _report(name)
    world = means.world()
    if line.output is not None:
        from qlock.flows.writing import check_output

        check_output(world, whole_path(world, line.output), _OURS)
    comparisons = flow.diff(
        world,
        flow.Asked(
            left=line.left,
            right=line.right,
            reference=line.reference,
            treatment=line.treatment,
            noise=line.noise,
            bridge=line.bridge,
        ),
    )
    code = exit_code_of(comparisons)
    text = _text(report, comparisons, line.at_most_gb)
    if line.output is not None:
        from qlock.flows.writing import write_file

        path = whole_path(world, line.output)
        write_file(world, path, text.encode())
        text = data_line(short_path(world, path))
    _say(means, comparisons, code)
    return Answer(code, text)


def _report(name: str) -> dict[str, Any]:
    """What the module of this name defines: how it shows a comparison, and perhaps many."""
    import importlib

    from qlock.flows.kinds import members

    known = members("qlock.reports")
    if name not in known:
        raise UsageError(f"got format `{name}`, expected one of: {', '.join(known)}")
    return vars(importlib.import_module(f"qlock.reports.{name}"))


def _text(report: dict[str, Any], comparisons: tuple[Comparison, ...], at_most_gb: float | None) -> str:
    """All comparisons as one document."""
    from msgspec import UNSET

    from qlock.core.ladder import ladder
    from qlock.core.units import bytes_of_gb

    text: str
    if len(comparisons) == 1 and at_most_gb is None:
        text = report["render"](comparisons[0])
    else:
        at_most_bytes = UNSET if at_most_gb is None else bytes_of_gb(at_most_gb)
        text = report["render_all"](ladder(comparisons, at_most_bytes=at_most_bytes))
    return text


def _say(means: Means, comparisons: tuple[Comparison, ...], code: ExitCode) -> None:
    """Of each comparison the first reason why it is not valid, or its gates; the report has them all."""
    from qlock.reports.interface import sides_named
    from qlock.reports.interface.gates import named, reason

    for comparison, (a, b) in zip(comparisons, sides_named(comparisons), strict=True):
        if comparison.why:
            first, *others = comparison.why
            more = f" (and {len(others)} more)" if others else ""
            means.talk.say("error", f"{b} against {a}: {comparison.state}: {first}{more}")
            continue
        for gate in comparison.gate:
            if gate.verdict != "pass":
                told = f"{named(gate)}: {gate.verdict}: {reason(gate)}"
                means.talk.say("error", f"{b}: gate {told}")
    if code == ExitCode.INVALID:
        means.talk.say("hint", _way_out(comparisons))


def _way_out(comparisons: tuple[Comparison, ...]) -> str:
    """What to do about comparisons that are not valid."""
    from msgspec import UNSET

    from qlock.core.validity import covering

    if any(one.bridge is not UNSET for one in comparisons):
        return "measure both points on one device: a bridge only describes"
    stops = [
        one
        for comparison in comparisons
        for one in comparison.difference
        if one.standing in ("fatal", "confound")
    ]
    if any(one.topic == "device" for one in stops):
        return "compare points of one device, or describe the way with a point that was run on both: --bridge POINT"
    if any(one.topic == "forced" for one in stops):
        return "run the lock again without --allow"
    treatment = covering(one for comparison in comparisons for one in comparison.difference)
    if treatment is not None:
        return f"compare points that differ in nothing else, or say --treatment {treatment} if that is meant to differ"
    return f"compare points that differ in {comparisons[0].treatment} alone; no --treatment covers what differs here"
