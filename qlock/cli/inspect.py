"""``qlock inspect``: its options, what it says, and its exit code.

Does not live here: reading models (``flows.inspect``) and the tables (``cli.inspected``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.shown import Answer, Means, document, offline
from qlock.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from qlock.flows.inspect import Inspection


class Line(NamedTuple):
    """The command line."""

    left: str
    right: str | None
    format: str
    tensors: bool
    offline: bool
    as_json: bool


@click.command("inspect")
@click.argument("left", metavar="A")
@click.argument("right", metavar="[B]", required=False)
@click.option(
    "--format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "markdown"]),
    help="How to show it.",
)
@click.option(
    "--tensors",
    is_flag=True,
    help="Show every tensor with its type and shape, also where both have the same.",
)
@click.option("--offline", is_flag=True, help="Use no network.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Say what a GGUF is, or how two of them differ, by headers alone.

    A and B are paths or sources, such as hub:OWNER/REPO:Q4_K_M, hub:OWNER/REPO/FILE.gguf@REVISION or https://…; of a
    file elsewhere only the header is read. Any shard stands for its whole set. Exits with 0 also where two models differ.
    """
    return _inspect(means, Line(**given))


def _inspect(means: Means, line: Line) -> Answer:
    from qlock.cli.inspected import markdown, text
    from qlock.flows import inspect as flow

    if line.as_json and line.format != "text":
        raise UsageError(f"got both --json and --format {line.format}, expected one of them")
    world = offline(means.world()) if line.offline else means.world()
    found = flow.inspect(world, (line.left, line.right) if line.right else (line.left,))
    for side in (found.a, found.b):
        if side:
            for warning in side.facts.warnings:
                means.talk.say("warning", f"{side.source}: {warning}")
    if line.as_json:
        return Answer(ExitCode.YES, document(_document(found)))
    show = markdown if line.format == "markdown" else text
    return Answer(ExitCode.YES, show(found, tensors=line.tensors))


def _document(found: Inspection) -> dict[str, Any]:
    import msgspec

    return {"verb": "inspect", **msgspec.to_builtins(found)}
