"""Whether a record is one of its job: what it says of itself, which items it has, and what was replied to them.

A record is a file, and files get edited. What is gone on with, graded, sealed or verified is held here against what
the lock has asked.

Does not live here: damage within a record (``core.record``), and its digests (``flows.verify_run``).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from qlock.core.base import Base
from qlock.core.exchange import (
    Call,
    Called,
    Complete,
    Completed,
    Diverge,
    Diverged,
    Reply,
    Request,
    Score,
    Scored,
)
from qlock.core.lock import Lock, named
from qlock.core.plan import Job, prompts_of
from qlock.core.record import Record, Row, is_done, item_digest
from qlock.errors import InputError
from qlock.flows.kinds import params_of, suite_kind
from qlock.flows.run_folder import RunFolder, header_of, items_name
from qlock.suites.interface import Item, Play


class Misfit(Base, frozen=True, kw_only=True):
    """One thing in a record that its job does not have."""

    what: str
    """Field of the header, or item and field of its row."""
    expected: str
    found: str


def refuse_misfit(folder: RunFolder, lock: Lock, job: Job, record: Record, *, forced: bool) -> None:
    """Stop when a record is not one of its job.

    Args:
        folder: Where it lies.
        lock: Of the run.
        job: Whose record it is said to be.
        record: As it was read.
        forced: Whether other items may have been asked than the lock says.

    Raises:
        InputError: With the first misfit, or the items were edited or, of a closed record, are gone.
    """
    digest = locked_items(lock, job)
    name = items_name(digest)
    items = folder.items(digest) if (folder.path / name).exists() else None
    if items is None and record.closing is not None:
        raise InputError(
            f"the items of `{job.name}` are gone",
            hint=f"put the file back, or remove `record/{job.name}.jsonl` to have them asked again",
        ).in_document(name)
    if items is not None and not forced:
        folder.refuse_other_items(digest, items)
    for misfit in misfits(lock, job, record, items):
        raise (
            InputError(f"got `{misfit.found}`, expected `{misfit.expected}`")
            .within(misfit.what)
            .in_document(f"record/{job.name}.jsonl")
        )


def locked_items(lock: Lock, job: Job) -> str:
    """The digest of the items that a job asks."""
    return prompts_of(named(lock.point, job.point), job.suite).items_digest


def misfits(lock: Lock, job: Job, record: Record, items: tuple[Item, ...] | None) -> Iterator[Misfit]:
    """Everything in a record that its job does not have.

    Args:
        lock: Of the run.
        job: Whose record it is said to be.
        record: As it was read.
        items: Those that were asked, in order; ``None`` where they are not known, and rows are not looked at.
    """
    header = header_of(job, items=job.items if items is None else len(items))
    for field in header.__struct_fields__:
        expected, found = str(getattr(header, field)), str(getattr(record.header, field))
        if expected != found:
            yield Misfit(what=f"header.{field}", expected=expected, found=found)
    if items is None:
        return
    suite = named(lock.suite, job.suite)
    kind = suite_kind(suite.kind)
    params = params_of(kind, suite, where=f"suite.{suite.name}")
    by_id = {item.id: item for item in items[job.places]}
    read_back = named(lock.point, job.point).read_back
    for row in record.rows:
        item = by_id.get(row.item)
        if item is None:
            yield Misfit(what="item", expected="one that was asked", found=row.item)
            continue
        yield from _row_misfits(row, item)
        if read_back is not UNSET:
            yield from _token_misfits(row, vocab_tokens=read_back.vocab_tokens)
        if is_done(row):
            said = _reply_misfit(kind.ask(item, params), row.replies)
            if said:
                yield Misfit(what=f"{row.item}.replies", expected="what the suite asks for", found=said)
        elif record.closing is not None:
            yield Misfit(what=f"{row.item}.replies", expected="an answer", found="none")


def _row_misfits(row: Row, item: Item) -> Iterator[Misfit]:
    digest = item_digest(item.id, item.slices, item.body)
    if row.item_digest != digest:
        yield Misfit(what=f"{row.item}.item_digest", expected=digest, found=row.item_digest)
    if row.slices != item.slices:
        yield Misfit(what=f"{row.item}.slices", expected=str(item.slices), found=str(row.slices))


def _token_misfits(row: Row, *, vocab_tokens: int) -> Iterator[Misfit]:
    for reply in row.replies:
        match reply:
            case Completed(tokens=tokens) if max(tokens, default=0) >= vocab_tokens:
                yield Misfit(
                    what=f"{row.item}.tokens",
                    expected=f"ids below the vocabulary's {vocab_tokens}",
                    found=str(max(tokens)),
                )
            case _:
                pass


def _reply_misfit(play: Play, replies: tuple[Reply, ...]) -> str:
    """What is wrong with the replies, when the play is played with them; empty when nothing is."""
    count = 0
    try:
        request = next(play)
        for reply in replies:
            if not _answers(request, reply):
                return f"another reply at {count + 1}"
            count += 1
            request = play.send(reply)
    except StopIteration:
        return "" if count == len(replies) else f"{len(replies)} replies to {count} requests"
    finally:
        play.close()
    return f"{count} replies, and the play goes on"


def _answers(request: Request, reply: Reply) -> bool:
    """Whether a reply is one to the request."""
    match request, reply:
        case (Complete(), Completed()) | (Call(), Called()):
            return True
        case Score(tokens=tokens, score_from=start), Scored(nats=nats):
            return len(nats) == len(tokens) - start
        case Diverge(tokens=tokens, score_from=start, pieces=has_pieces), Diverged() as diverged:
            count = len(tokens) - start
            numbers = (
                diverged.nats,
                diverged.reference_nats,
                diverged.kld_nats,
                diverged.reverse_kld_nats,
                diverged.same_top,
            )
            return (
                all(len(row) == count for row in numbers)
                and len(diverged.pieces) == count * has_pieces
                and len(diverged.kld_slack_nats) in (0, count)
            )
        case _:
            return False
