"""Split models: several GGUF files that are one model.

Lives here: the names of shards, what a shard says of itself, and whether a set of shards belongs together. Does
not live here: finding shards (``world.files``, ``world.hub``).

llama.cpp is given the first shard and finds the others by name. It checks number, count and the total of tensors,
but not that the shards come from one model.

Source: llama.cpp b11434, ``src/llama.cpp`` (``llama_split_path``) and ``src/llama-model-loader.cpp``. Names count
from 1, ``split.no`` counts from 0.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count
from qlock.core.gguf_header import Header, shown
from qlock.errors import InputError

MAX_PROBLEMS = 20
"""More of them are counted, not shown."""

_SHARD = re.compile(r"(?P<prefix>.*)-(?P<no>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


class Split(Base, frozen=True, kw_only=True):
    """What a shard says of itself."""

    no: Count
    """Counted from 0."""
    count: Count
    tensors_count: Count | UnsetType = UNSET
    """Of all shards together."""


def shard_names(name: str) -> tuple[str, ...]:
    """The names of all shards of the set that ``name`` is one of; ``name`` alone when it is no shard's name.

    Args:
        name: File name or path, for example ``models/big-00002-of-00003.gguf``.

    Raises:
        InputError: The name counts beyond its own total.
    """
    place = _place(name)
    if place is None:
        return (name,)
    prefix, no, count = place
    if not 1 <= no <= count:
        raise InputError(f"the name {shown(name)} is shard `{no}` of `{count}`, expected `1` to `{count}`")
    return tuple(f"{prefix}-{each:05d}-of-{count:05d}.gguf" for each in range(1, count + 1))


def split_of(header: Header) -> Split | UnsetType:
    """What the header's ``split.*`` keys say; unset for a model in one file.

    Raises:
        InputError: The keys are of the wrong type, or only some of them are there.
    """
    if not any(key.startswith("split.") for key in header.values):
        return UNSET
    total: int | UnsetType = UNSET
    if "split.tensors.count" in header.values:
        total = _whole(header, "split.tensors.count")
    return Split(no=_whole(header, "split.no"), count=_whole(header, "split.count"), tensors_count=total)


def check_split(headers: tuple[tuple[str, Header], ...]) -> None:
    """Check that files are one whole model, given as at least one (name, header), in any order.

    One file that does not call itself a shard passes. Names may be paths, but all in one folder.

    Raises:
        InputError: Something is wrong with the set; one line names everything that is.
    """
    names = [name for name, _ in headers]
    problems = [f"{shown(name)} is given twice" for name, times in Counter(names).items() if times > 1]
    wanted = shard_names(names[0])
    if len(wanted) > 1:
        problems += [f"shard {shown(name)} is missing" for name in wanted if name not in names]
    problems += [f"{shown(name)} is no shard of {shown(wanted[0])}" for name in names if name not in wanted]
    splits = []
    for name, header in headers:
        try:
            splits.append((name, split_of(header)))
        except InputError as error:
            problems.append(f"{shown(name)}: {error.message}")
    problems += _numbers(splits)
    if not problems:
        problems += _tensors(headers)
        problems += _foreign(headers)
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        raise InputError("; ".join(problems[:MAX_PROBLEMS]) + more)


def _whole(header: Header, key: str) -> int:
    found = header.value(key)
    if type(found) is not int or found < 0:
        raise InputError(f"`{key}` is {header.shown_value(key)}, expected a whole number")
    return found


def _place(name: str) -> tuple[str, int, int] | None:
    """Prefix, number and count of a shard's name."""
    found = _SHARD.fullmatch(name)
    return None if found is None else (found["prefix"], int(found["no"]), int(found["count"]))


def _numbers(splits: list[tuple[str, Split | UnsetType]]) -> list[str]:
    """Where a shard's name and its own numbers disagree, or two shards' numbers do."""
    problems = []
    seen: dict[int, str] = {}
    for name, split in splits:
        place = _place(name)
        if split is UNSET:
            if place is not None and place[2] > 1:
                problems.append(f"{shown(name)} has no `split.count`")
            continue
        _, no, count = place or ("", 1, 1)
        if split.count != count:
            problems.append(f"{shown(name)} has `split.count` `{split.count}`, expected `{count}`")
        if split.no in seen:
            problems.append(f"{shown(name)} has the same `split.no` `{split.no}` as {shown(seen[split.no])}")
        elif split.no != no - 1:
            problems.append(f"{shown(name)} has `split.no` `{split.no}`, expected `{no - 1}`")
        seen.setdefault(split.no, name)
    return problems


def _tensors(headers: tuple[tuple[str, Header], ...]) -> list[str]:
    """Tensors that stand in two shards, and totals that the tensors do not add up to."""
    problems = []
    home: dict[str, str] = {}
    for name, header in headers:
        for tensor in header.tensors:
            if tensor.name in home:
                problems.append(
                    f"tensor {shown(tensor.name)} is in {shown(home[tensor.name])} and in {shown(name)}"
                )
            home.setdefault(tensor.name, name)
    total = sum(len(header.tensors) for _, header in headers)
    for name, header in headers:
        split = split_of(header)
        if split is not UNSET and split.tensors_count not in (UNSET, total):
            problems.append(
                f"{shown(name)} has `split.tensors.count` `{split.tensors_count}`, the shards have `{total}`"
            )
    return problems


def _foreign(headers: tuple[tuple[str, Header], ...]) -> list[str]:
    """Keys that a later shard repeats with another value than the first shard's."""
    (first_name, first), *others = sorted(headers, key=lambda pair: pair[0])
    problems = []
    for name, header in others:
        problems += [
            f"{shown(name)} is of another model than {shown(first_name)}: its {shown(key)} differs"
            for key in header.values
            if key in first.values and not key.startswith("split.") and first.row(key) != header.row(key)
        ]
    return problems
