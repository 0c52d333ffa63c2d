"""``qlock inspect``: what a model is, told from its header, and what two models differ in.

A model is a local GGUF, or one on the Hub or behind an address, of which nothing but the header is read. No weight is
looked at: the tensors' names, types and shapes are compared, their bytes only where there are digests of whole files.

Does not live here: reading a header (``core.gguf``), and how any of it is shown (``cli.inspect``).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Positive
from qlock.core.digest import Digest
from qlock.core.ggml_types import type_name
from qlock.core.gguf import GgufFacts, Header, check_split, describe, shard_names
from qlock.core.quants import choose
from qlock.core.recipe import ClassRow, RecipeDifference, recipe_by_class, recipe_difference
from qlock.core.source import (
    FileSource,
    HubSource,
    UrlSource,
    WheelSource,
    address_name,
    beside,
    parse_source,
    seen_address,
    shown_address,
)
from qlock.flows.headers import at_once, header_behind, header_of, headers_at
from qlock.flows.places import shards
from qlock.world.interface import Hub, Remote, World

MOST_LINES = 2_000
"""Of two templates where they differ; longer ones are told apart by their digests alone."""

_KINDS = ("file:", "wheel:", "hub:")
_ADDRESSES = ("url:", "https:", "http:")


class SeenFile(Base, frozen=True, kw_only=True):
    """One file of a model."""

    name: str
    size_bytes: Count
    tensors: Count
    sha256: Digest | UnsetType = UNSET
    """As the Hub names it; unset for the others, which are not read through."""


class TensorRow(Base, frozen=True, kw_only=True):
    """One tensor."""

    name: str
    type: str
    shape: tuple[int, ...]
    """In GGML's order: the first dimension is the row."""
    bytes: Count | UnsetType = UNSET
    """Without padding; unset when the type is unknown."""
    file: Positive
    """The number of its file, the first being 1."""


class Side(Base, frozen=True, kw_only=True):
    """One model."""

    source: str
    commit: str
    """Of a model on the Hub; else empty."""
    file: tuple[SeenFile, ...]
    facts: GgufFacts
    classes: tuple[ClassRow, ...]
    tensors: Count
    tensor: tuple[TensorRow, ...]
    """Each of them, in file order."""
    tokenizer_model: str | UnsetType = UNSET
    tokenizer_pre: str | UnsetType = UNSET
    """How a BPE vocabulary splits a text before it joins."""


class Inspection(Base, frozen=True, kw_only=True):
    """One model, or two side by side."""

    a: Side
    b: Side | UnsetType = UNSET
    difference: RecipeDifference | UnsetType = UNSET
    parts: dict[str, bool]
    """Which parts of the identity are the same in both; empty for one model."""
    template_difference: tuple[str, ...]
    """Lines of a unified diff of the chat templates; empty where they are equal."""


def inspect(world: World, sources: tuple[str, ...]) -> Inspection:
    """One model, or what the second one has otherwise than the first.

    Args:
        world: The effects.
        sources: One or two: a path, or a source as in a spec; ``hub:…@REVISION`` names another revision than main.

    Raises:
        InputError: A source or a file is not what it should be.
        AbsentError: It is not there.
    """
    found = [_opened(world, source) for source in sources]
    (a, headers_a), *rest = found
    if not rest:
        return Inspection(a=a, parts={}, template_difference=())
    b, headers_b = rest[0]
    difference = recipe_difference(
        (tensor for header in headers_a for tensor in header.tensors),
        (tensor for header in headers_b for tensor in header.tensors),
    )
    return Inspection(
        a=a,
        b=b,
        difference=difference,
        parts=_parts(a, b, difference),
        template_difference=template_difference(_templates(a.facts), _templates(b.facts)),
    )


def template_difference(a: str, b: str) -> tuple[str, ...]:
    """A unified diff of two texts by lines, in bounded time; without line ends."""
    if a == b:
        return ()
    lines_a, lines_b = a.split("\n"), b.split("\n")
    head = _common(lines_a, lines_b)
    tail = _common(lines_a[head:][::-1], lines_b[head:][::-1])
    if max(len(lines_a), len(lines_b)) - head - tail > MOST_LINES:
        return (f"more than {MOST_LINES} lines differ",)
    # Comparing grows with the product of both lengths; what is common at the ends costs nothing that way.
    first, last = max(0, head - 3), max(0, tail - 3)
    diff = difflib.unified_diff(
        lines_a[first : len(lines_a) - last],
        lines_b[first : len(lines_b) - last],
        fromfile="A",
        tofile="B",
        lineterm="",
    )
    return tuple(_moved(line, first) for line in diff)


def _opened(world: World, text: str) -> tuple[Side, tuple[Header, ...]]:
    if text.startswith(_ADDRESSES):
        return _behind(world.remote, text)
    source = parse_source(text if text.startswith(_KINDS) else f"file:{text}")
    match source:
        case FileSource(path=path):
            return _local(world, text, world.cwd / path)
        case WheelSource(package=package, member=member):
            return _local(world, text, world.wheels.member(f"{package}/{member}"))
        case HubSource():
            return _remote(world.hub, text, source)
        case UrlSource():
            raise AssertionError(text)


def _local(world: World, source: str, path: Path) -> tuple[Side, tuple[Header, ...]]:
    paths = shards(path)
    headers = tuple(header_of(world, each) for each in paths)
    files = [(each.name, UNSET) for each in paths]
    return _side(source, "", files, headers), headers


def _remote(hub: Hub, text: str, source: HubSource) -> tuple[Side, tuple[Header, ...]]:
    listing = hub.listing(source.repository, source.revision or "main", kind=source.repository_kind)
    by_path = {file.path: file for file in listing.files}
    files = [by_path[path] for path in choose(tuple(by_path), source.path, repository=source.repository)]
    headers = headers_at(hub, [(listing.snapshot, file) for file in files])
    seen = [(file.path, file.sha256) for file in files]
    return _side(text, listing.snapshot.commit, seen, headers), headers


def _behind(remote: Remote, text: str) -> tuple[Side, tuple[Header, ...]]:
    """The file behind an address, and the other shards beside it. No digest is known: only headers are read."""
    url = seen_address(text)
    urls = [beside(url, name) for name in shard_names(address_name(url))]
    headers = at_once(
        lambda one: header_behind(remote, one, remote.size_bytes(one), name=address_name(one)), urls
    )
    return _side(
        f"url:{shown_address(url)}", "", [(address_name(one), UNSET) for one in urls], headers
    ), headers


def _side(
    source: str, commit: str, files: Sequence[tuple[str, Digest | UnsetType]], headers: tuple[Header, ...]
) -> Side:
    check_split(tuple((name, header) for (name, _), header in zip(files, headers, strict=True)))
    tensors = [tensor for header in headers for tensor in header.tensors]
    model, pre = headers[0].text("tokenizer.ggml.model"), headers[0].text("tokenizer.ggml.pre")
    return Side(
        source=source,
        commit=commit,
        file=tuple(
            SeenFile(name=name, size_bytes=header.file_bytes, tensors=len(header.tensors), sha256=sha256)
            for (name, sha256), header in zip(files, headers, strict=True)
        ),
        facts=describe(*headers),
        classes=recipe_by_class(tensors),
        tensors=len(tensors),
        tensor=tuple(
            TensorRow(
                name=tensor.name,
                type=type_name(tensor.type_id),
                shape=tensor.shape,
                bytes=tensor.size_bytes,
                file=number,
            )
            for number, header in enumerate(headers, start=1)
            for tensor in header.tensors
        ),
        tokenizer_model=UNSET if model is None else model,
        tokenizer_pre=UNSET if pre is None else pre,
    )


def _parts(a: Side, b: Side, difference: RecipeDifference) -> dict[str, bool]:
    digests = [file.sha256 for side in (a, b) for file in side.file]
    known = {} if UNSET in digests else {"files": _digests(a) == _digests(b)}
    return known | {
        "recipe": difference.same,
        "template": a.facts.template_digest == b.facts.template_digest,
        "tokenizer": a.facts.tokenizer_digest == b.facts.tokenizer_digest,
        "metadata": a.facts.metadata_digest == b.facts.metadata_digest,
        "sampling keys": a.facts.sampling == b.facts.sampling,
        "imatrix": a.facts.imatrix == b.facts.imatrix,
    }


def _digests(side: Side) -> list[Digest | UnsetType]:
    return [file.sha256 for file in side.file]


def _templates(facts: GgufFacts) -> str:
    """Every chat template of a model as one text, the named ones below a line with their name."""
    whole = "" if facts.template is UNSET else facts.template
    for name in sorted(facts.named_templates):
        whole += f"\n[template {name}]\n{facts.named_templates[name]}"
    return whole


def _common(a: list[str], b: list[str]) -> int:
    """How many lines are the same from the beginning on."""
    for number, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return number
    return min(len(a), len(b))


def _moved(line: str, by: int) -> str:
    """A diff's ``@@ -1,4 +1,5 @@`` with its line numbers moved; any other line as it is."""
    if not (line.startswith("@@ -") and line.endswith(" @@")):
        return line
    spans = [
        ",".join([str(int(start) + by), *rest])
        for start, *rest in (span[1:].split(",") for span in line.split()[1:3])
    ]
    return f"@@ -{spans[0]} +{spans[1]} @@"
