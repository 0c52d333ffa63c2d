"""A look at one or two models as text for a terminal, or as Markdown for a review.

Lives here: the words and tables of ``qlock inspect``. Does not live here: reading the models (``flows.inspect``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, UnsetType

from qlock.core.columns import aligned
from qlock.core.escape import for_markdown, for_markdown_block, for_terminal
from qlock.core.units import bytes_text

if TYPE_CHECKING:
    from qlock.flows.inspect import Inspection, Side

TEMPLATE_LINES = 8
"""Of one model's template that are shown."""
MOST_ROWS = 400
"""Of one table; the rest is counted."""
MOST_TENSORS = 20_000
"""Of the table that was asked for."""

_NUMBERS = re.compile("([0-9]+)")
_BLOCK = 40_000
_CELL = 1_000


class Table(NamedTuple):
    """Rows under names."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    """Columns of numbers."""


class Block(NamedTuple):
    """Text that is shown as it is."""

    title: str
    text: str


Piece = Table | Block


def text(found: Inspection, *, tensors: bool = False) -> str:
    """All of it for a terminal; with ``tensors`` each of them."""
    pieces = _pieces(found, tensors=tensors)
    return "\n".join("".join(f"{line}\n" for line in _text_lines(piece)) for piece in pieces)


def markdown(found: Inspection, *, tensors: bool = False) -> str:
    """All of it for a comment or a file; with ``tensors`` each of them."""
    pieces = _pieces(found, tensors=tensors)
    return "\n".join("".join(f"{line}\n" for line in _markdown_lines(piece)) for piece in pieces)


def _pieces(found: Inspection, *, tensors: bool) -> Iterator[Piece]:
    if found.b is UNSET:
        yield Table(_title(found.a), ("what", "value"), tuple(_facts(found.a)))
        if len(found.a.file) > 1:
            yield _files(found.a)
        yield _classes(found.a)
        if tensors:
            yield _tensors(found.a)
        yield from _template(found.a)
        return
    a, b = found.a, found.b
    yield Table("Sources", ("side", "source"), (("A", _title(a)), ("B", _title(b))))
    yield Table("Differences", ("what", "A against B"), tuple(_differences(found)))
    pairs = zip(_facts(a), _facts(b), strict=True)
    yield Table(
        "Facts",
        ("what", "A", "B", ""),
        tuple((what, left, right, "" if left == right else "≠") for (what, left), (_, right) in pairs),
    )
    if tensors:
        yield _tensors_of_both(a, b)
    elif found.difference is not UNSET and not found.difference.same:
        yield Table("Recipe", ("tensor", "A", "B"), tuple(_changes(found)))
    if found.template_difference:
        yield Block("Chat template", "\n".join(found.template_difference))


def _title(side: Side) -> str:
    return f"{side.source} at commit {side.commit}" if side.commit else side.source


def _facts(side: Side) -> Iterator[tuple[str, str]]:
    facts = side.facts
    size = sum(file.size_bytes for file in side.file)
    yield "files", f"{len(side.file)}, {size} bytes ({bytes_text(size)})"
    digests = [str(file.sha256) for file in side.file if file.sha256 is not UNSET]
    yield "sha256", " ".join(digests) or "not read"
    yield "name", _said(facts.name)
    yield "architecture", facts.architecture
    yield "parameters", str(facts.parameters)
    bits = facts.bits_per_weight
    yield "bits per weight", f"unknown: {facts.bits_per_weight_why}" if bits is UNSET else f"{bits:.3f}"
    yield "recipe", ", ".join(f"{row.type} × {row.tensors}" for row in facts.recipe) or "no tensors"
    yield "label of the file type", _said(facts.file_type)
    yield "trained context", _said(facts.context_length_tokens)
    yield "blocks", _said(facts.block_count)
    yield "experts", _said(facts.expert_count)
    yield (
        "tokenizer",
        f"{_said(side.tokenizer_model)}, {_said(side.tokenizer_pre)}, {_said(facts.vocab_size)} tokens",
    )
    yield "tokenizer digest", _said(facts.tokenizer_digest)
    yield "BOS, EOS", f"{_said(facts.bos_token)}, {_said(facts.eos_token)}"
    added = facts.add_bos
    yield "adds BOS", "not said" if added is UNSET else "yes" if added else "no"
    template = facts.template
    yield "template", "none" if template is UNSET else f"{len(template)} characters"
    yield "named templates", ", ".join(sorted(facts.named_templates)) or "none"
    yield "template digest", _said(facts.template_digest)
    yield "metadata digest", facts.metadata_digest
    yield "sampling keys", _keys(facts.sampling)
    yield "imatrix", _keys(facts.imatrix)
    yield "warnings", "; ".join(facts.warnings) or "none"


def _said(value: str | int | UnsetType) -> str:
    return "not said" if value is UNSET else str(value)


def _keys(values: dict[str, str | float | bool]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in sorted(values.items())) or "none"


def _classes(side: Side) -> Table:
    rows = tuple(
        (
            row.tensor_class,
            row.type,
            str(row.tensors),
            str(row.elements),
            "unknown" if row.bytes is UNSET else str(row.bytes),
            "unknown" if row.bytes is UNSET or not row.elements else f"{row.bytes * 8 / row.elements:.3f}",
        )
        for row in side.classes
    )
    head = ("tensors of", "type", "tensors", "weights", "bytes", "bits per weight")
    return Table("Recipe", head, _bounded(rows), right=(2, 3, 4, 5))


def _files(side: Side) -> Table:
    rows = tuple(
        (file.name, str(file.size_bytes), str(file.tensors), _said(file.sha256)) for file in side.file
    )
    return Table("Files", ("file", "bytes", "tensors", "sha256"), rows, right=(1, 2))


def _tensors(side: Side) -> Table:
    rows = tuple(
        (
            row.name,
            row.type,
            _shape(row.shape),
            "unknown" if row.bytes is UNSET else str(row.bytes),
            str(row.file),
        )
        for row in sorted(side.tensor, key=lambda row: _by_class(row.name))
    )
    head = ("tensor", "type", "shape", "bytes", "file")
    return Table("Tensors", head, _bounded(rows, MOST_TENSORS), right=(3, 4))


def _tensors_of_both(a: Side, b: Side) -> Table:
    """Every tensor of either, with its type and shape on both sides."""
    sides = [{row.name: f"{row.type} {_shape(row.shape)}" for row in side.tensor} for side in (a, b)]
    rows = []
    for name in sorted({*sides[0], *sides[1]}, key=_by_class):
        left, right = (side.get(name, "absent") for side in sides)
        rows.append((name, left, right, "" if left == right else "≠"))
    return Table("Tensors", ("tensor", "A", "B", ""), _bounded(tuple(rows), MOST_TENSORS))


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "one number"


def _template(side: Side) -> Iterator[Block]:
    if side.facts.template is not UNSET:
        lines = side.facts.template.split("\n")
        more = len(lines) - TEMPLATE_LINES
        tail = [f"… {more} more lines"] if more > 0 else []
        yield Block("Chat template", "\n".join([*lines[:TEMPLATE_LINES], *tail]))


def _differences(found: Inspection) -> Iterator[tuple[str, str]]:
    for part, is_same in found.parts.items():
        if part == "recipe" and found.difference is not UNSET:
            yield part, found.difference.sentence()
        else:
            yield part, "identical" if is_same else "differs"
    if not found.parts.get("files"):
        yield "weights", "not compared: headers alone are read"


def _changes(found: Inspection) -> tuple[tuple[str, ...], ...]:
    difference = found.difference
    if difference is UNSET:
        return ()
    return _bounded(
        (
            *sorted(
                ((change.tensor, change.type_a, change.type_b) for change in difference.changed),
                key=lambda row: _by_class(row[0]),
            ),
            *((name, "other shape", "other shape") for name in sorted(difference.reshaped, key=_by_class)),
            *((name, "there", "absent") for name in sorted(difference.only_in_a, key=_by_class)),
            *((name, "absent", "there") for name in sorted(difference.only_in_b, key=_by_class)),
        )
    )


def _by_class(name: str) -> tuple[str, list[tuple[int, str]]]:
    """Where a tensor's name belongs: tensors of one class together, ``blk.2`` before ``blk.10``.

    Numbers are compared by length and then as text, since a file may hold one of any length.
    """
    from qlock.core.recipe import tensor_class

    parts = _NUMBERS.split(name)
    return tensor_class(name), [
        (len(part.lstrip("0")) if place % 2 else 0, part) for place, part in enumerate(parts)
    ]


def _bounded(rows: tuple[tuple[str, ...], ...], most: int = MOST_ROWS) -> tuple[tuple[str, ...], ...]:
    if len(rows) <= most:
        return rows
    rest = (f"and {len(rows) - most} more; --json has them all", *([""] * (len(rows[0]) - 1)))
    return (*rows[:most], rest)


def _cell(text: str) -> str:
    return for_terminal(text, limit=_CELL, newlines="arrow")


def _text_lines(piece: Piece) -> Iterator[str]:
    yield _cell(piece.title)
    match piece:
        case Block(text=body):
            for line in for_terminal(body, limit=_BLOCK).split("\n"):
                yield f"  {line}".rstrip()
        case Table(head=head, rows=rows, right=right):
            for line in aligned([[_cell(cell) for cell in row] for row in (head, *rows)], right=right):
                yield f"  {line}"


def _markdown_lines(piece: Piece) -> Iterator[str]:
    yield f"### {for_markdown(piece.title, limit=_CELL)}"
    yield ""
    match piece:
        case Block(text=body):
            yield from for_markdown_block(body, limit=_BLOCK).split("\n")
        case Table(head=head, rows=rows, right=right):
            yield _markdown_row(head)
            yield "|" + "".join(f" {'---:' if column in right else '---'} |" for column in range(len(head)))
            for row in rows:
                yield _markdown_row(row)


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(for_markdown(cell, limit=_CELL) for cell in cells) + " |"
