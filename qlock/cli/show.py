"""``qlock show``: its options, what it says, and its exit code.

What models wrote stands behind a bar, line by line, so that no line of it can be taken for one of qlock's.

Does not live here: reading the run (``flows.show``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import run_asked
from qlock.cli.shown import Answer, Means, Talk, document, readable
from qlock.core.units import count_text
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.core.exchange import Chat, Raw, Reply, Request
    from qlock.flows.show import ItemSeen, Shown

_CELL = 100
"""Characters of a table's cell at most."""


class Line(NamedTuple):
    """The command line."""

    run: Path
    item: str
    suite: str
    point: str
    outcome: tuple[str, ...]
    ending: tuple[str, ...]
    as_json: bool


@click.command("show")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("item", required=False, default="")
@click.option("--suite", default="", metavar="NAME", help="Only of this suite.")
@click.option("--point", default="", metavar="NAME", help="Only of this point, such as Q4_K_M@f16kv.")
@click.option(
    "--outcome",
    multiple=True,
    metavar="NAME",
    help="Only right, wrong, partial, unparsable, ungraded, excluded, nats or divergence; may be given again.",
)
@click.option(
    "--ending",
    multiple=True,
    metavar="NAME",
    help="Only eos, stop, budget, context or error; may be given again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Show what was asked in a run, what was answered, and its worth.

    Without ITEM, a row for each item at each point. With ITEM, its prompt, and of each point the replies with their
    endings, the outcome, and why. Works on runs that are not whole too; exits with 5 when ITEM has no answer yet.
    """
    return _show(means, Line(**given))


def _show(means: Means, line: Line) -> Answer:
    from qlock.flows import show as flow

    world = means.world()
    asked = flow.Asked(
        path=run_asked(world, line.run),
        item=line.item,
        suite=line.suite,
        point=line.point,
        outcome=line.outcome,
        ending=line.ending,
    )
    shown = flow.show(world, asked)
    _say(means.talk, shown)
    is_missing = bool(line.item) and not any(item.is_answered for item in shown.items)
    code = ExitCode.INCOMPLETE if is_missing and not shown.left_out else ExitCode.YES
    if line.as_json:
        return Answer(code, document({"verb": "show", **_plain(shown)}))
    lines = _item_lines(shown.items) if line.item else _table(shown.items)
    return Answer(code, "".join(f"{text}\n" for text in lines))


def _plain(shown: Shown) -> dict[str, object]:
    import msgspec

    plain: dict[str, object] = msgspec.to_builtins(shown)
    return plain


def _say(talk: Talk, shown: Shown) -> None:
    if not shown.is_sealed:
        talk.say("note", f"`{shown.run}` is not sealed: it is shown as far as it goes")
    for job, items in shown.not_begun.items():
        talk.say("note", f"{job}: nothing was asked yet ({count_text(items, 'item')})")
    for fact in shown.forced:
        talk.say("warning", f"FORCED: `{fact}` was allowed to differ; no comparison with this run is valid")
    if shown.left_out:
        of = len(shown.items) + shown.left_out
        talk.say("note", f"{len(shown.items)} of {count_text(of, 'row')} shown")


def _table(items: tuple[ItemSeen, ...]) -> Iterator[str]:
    """A row for each item; the repeat is told where there are several."""
    from qlock.core.columns import aligned
    from qlock.core.escape import for_terminal

    has_repeats = any(item.repeat > 1 for item in items)
    head = ("item", "suite", "point", *["repeat"] * has_repeats, "outcome", "ending", "tokens", "why")
    rows = [[for_terminal(cell, limit=_CELL, newlines="arrow") for cell in row] for row in map(_row, items)]
    if not has_repeats:
        rows = [[*row[:3], *row[4:]] for row in rows]
    right = (3, 6) if has_repeats else (5,)
    if rows:
        yield from aligned([head, *rows], right=right)


def _row(item: ItemSeen) -> tuple[str, ...]:
    from qlock.flows.grading import reason, word

    why = reason(item.outcome)
    return (
        item.item,
        item.suite,
        item.point,
        str(item.repeat),
        word(item.outcome),
        _ending(item),
        str(item.tokens),
        why,
    )


def _ending(item: ItemSeen) -> str:
    return ", ".join([*([item.ending] if item.ending else []), *["loop"] * item.loops])


def _item_lines(items: tuple[ItemSeen, ...]) -> Iterator[str]:
    """What was asked once for all points that were asked the same, then each point's answer."""
    from qlock.flows.grading import told

    suite = ""
    request: Request | None = None
    for item in items:
        if item.suite != suite:
            suite, request = item.suite, None
            slices = "".join(f", {name} {value}" for name, value in item.slices.items())
            yield _own(f"{item.item} of the suite {item.suite}{slices}")
        where = item.point if item.repeat == 1 else f"{item.point}, repeat {item.repeat}"
        result = _own(f"{where}: {told(item.outcome)}{', loops' if item.loops else ''}")
        for number, exchange in enumerate(item.exchanges or ()):
            if exchange.request and exchange.request != request:
                request = exchange.request
                yield from _request_lines(request)
                yield from _scored_lines(request, items)
            if number == 0:
                yield result
            if exchange.reply:
                yield from _reply_lines(exchange.reply)


def _request_lines(request: Request) -> Iterator[str]:
    from qlock.core.exchange import Call, Complete, Diverge, Score

    match request:
        case Complete(prompt=prompt):
            yield from _prompt_lines(prompt)
        case Score(tokens=tokens, score_from=first):
            yield f"{count_text(len(tokens), 'token')} of a text, scored from number {first + 1} on"
        case Diverge(tokens=tokens, score_from=first, pieces=True):
            asked, answered = count_text(first, "token"), count_text(len(tokens) - first, "token")
            yield f"a trace: a prompt of {asked}, kept as ids alone (--json shows them), and an answer of {answered}"
        case Diverge(tokens=tokens, score_from=first):
            held = f"held against the reference from number {first + 1} on"
            yield f"{count_text(len(tokens), 'token')} of a text, {held}"
        case Call(calls=calls):
            yield "calls:"
            for call in calls:
                yield from _foreign(call)


def _scored_lines(request: Request, items: tuple[ItemSeen, ...]) -> Iterator[str]:
    """The text that was scored, as the first point tells it that was asked this; none where no point tells it."""
    from qlock.core.exchange import Diverged

    for item in items:
        for exchange in item.exchanges or ():
            match exchange.reply:
                case Diverged(pieces=(_, *_) as pieces) if exchange.request == request:
                    yield from _foreign("".join(pieces))
                    return
                case _:
                    pass


def _prompt_lines(prompt: Chat | Raw) -> Iterator[str]:
    import msgspec

    from qlock.core.exchange import Chat, Raw

    match prompt:
        case Raw(text=text):
            yield "prompt, continued as it stands:"
            yield from _foreign(text)
        case Chat(messages=messages, tools=tools):
            yield "conversation, before the chat template:"
            for tool in tools:
                yield " tool:"
                yield from _foreign(msgspec.json.encode(tool).decode())
            for message in messages:
                yield _own(f" {message.role}:")
                yield from _foreign(message.content)


def _reply_lines(reply: Reply) -> Iterator[str]:
    import math

    from qlock.core.exchange import Called, Completed, Diverged, Failed, Scored

    match reply:
        case Completed(text=text, tokens=tokens, ending=ending, why=why):
            more = f" ({why})" if why else ""
            yield _own(f" reply of {count_text(len(tokens), 'token')}, ending {ending}{more}:")
            yield from _foreign(text)
        case Scored(nats=nats):
            cost = math.fsum(nats)
            mean = f", {cost / len(nats):.4f} each" if nats else ""
            yield f" {count_text(len(nats), 'token')} cost {cost:.4f} nats{mean}"
        case Diverged(nats=nats, kld_nats=kld_nats, kld_slack_nats=slack):
            least = "at least " if slack else ""
            apart = math.fsum(kld_nats) / max(1, len(kld_nats))
            yield (
                f" {count_text(len(nats), 'token')} cost {math.fsum(nats):.4f} nats,"
                f" {least}{apart:.6f} nats each from the reference"
            )
        case Called(results=results):
            yield " results:"
            for text in results:
                yield from _foreign(text)
        case Failed(why=why):
            yield _own(f" no reply: {why}")


def _own(text: str) -> str:
    """A line of qlock's own, whatever stands in it."""
    from qlock.core.escape import for_terminal

    return for_terminal(text, newlines="arrow")


def _foreign(text: str) -> Iterator[str]:
    """Text of a file or a model, a bar before each of its lines."""
    for line in readable(text).split("\n"):
        yield f"  | {line}"
