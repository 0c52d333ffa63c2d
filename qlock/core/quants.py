"""Which files of a repository are one model, chosen the way people name quants.

Lives here: a quant's name in a file's name, and the choice of a model's shards from a listing of paths. Does not live
here: the listing (``world.hub``), and what a file really holds: a name is a label, the recipe decides (``core.gguf``).

A quant's name is a whole one: ``Q4_K_M`` names neither ``UD-Q4_K_XL`` nor ``Q4_K_M_L``. Neither a name nor a pattern
ever chooses an importance matrix or a projector (``imatrix.gguf``, ``mmproj-BF16.gguf``); their exact paths do.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence

from qlock.core.escape import for_message
from qlock.core.gguf_split import shard_names
from qlock.core.words import listed
from qlock.errors import InputError

MOST_NAMED = 12
"""Names of quants or files in one message; more of them are counted."""

_SUFFIX = ".gguf"
_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}\Z")
_TAG = re.compile(
    r"(?:^|(?<=[-._ ]))"
    r"((?:UD-)?(?:I?Q[0-9]+|TQ[0-9]+|BF16|FP?16|FP?32|BF32|FP8|FP4|MXFP4|NVFP4)(?:_[A-Z0-9]+)*)"
    r"(?=$|[-. ])",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[-._/ ]+")
_WILD = re.compile(r"[*?\[]")


def choose(paths: Sequence[str], wanted: str, *, repository: str) -> tuple[str, ...]:
    """The file that is meant, or all shards of the model that is meant, in order.

    Args:
        paths: Every file of the repository.
        wanted: A path (of any one shard), a pattern such as ``*Q4_K_M*.gguf``, or the name of a quant, in capitals
            or not. A pattern without ``/`` is held against names in every folder.
        repository: For messages.

    Raises:
        InputError: It means no file, several models, or a model that has not all of its shards there.
    """
    if wanted in paths:
        return _whole(paths, wanted, repository)
    models = models_of(paths)
    if _WILD.search(wanted):
        found = [first for first in models if _fits(first, wanted)]
    else:
        found = [first for first in models if is_quant(first, wanted)]
    if len(found) > 1:
        raise InputError(
            f"`{for_message(wanted)}` names {len(found)} models of `{repository}`: {listed(found, most=MOST_NAMED, in_backticks=True)}",
            hint="name one of these files",
        )
    if not found:
        raise InputError(
            f"`{for_message(wanted)}` names no model of `{repository}`", hint=_instead(paths, models, wanted)
        )
    return _whole(paths, found[0], repository)


def models_of(paths: Iterable[str]) -> tuple[str, ...]:
    """One path for each model, the first of its shards that is there, in path order."""
    seen: dict[str, str] = {}
    for path in sorted(paths):
        if path.lower().endswith(_SUFFIX) and not is_companion(path):
            seen.setdefault(_SHARD.sub("", path[: -len(_SUFFIX)]), path)
    return tuple(seen.values())


def quant_of(path: str) -> str:
    """The quant that a file's name claims (``UD-Q4_K_XL``), else its folder's; empty when neither has one.

    The last one in the name counts, as in ``mxfp4-model-Q8_0.gguf``.
    """
    for part in reversed(path.removesuffix(_SUFFIX).split("/")[-2:]):
        tags = _TAG.findall(_SHARD.sub("", part))
        if tags:
            return str(tags[-1])
    return ""


def is_quant(path: str, name: str) -> bool:
    """Whether the file's name, or its folder's, says that it is the quant ``name``."""
    tag = quant_of(path)
    if tag:
        return tag.lower() == name.lower()
    # A name without any known kind of quant: its last part, as in `model-ternary.gguf`.
    stem = _SHARD.sub("", path.removesuffix(_SUFFIX)).lower()
    return any(stem.endswith(separator + name.lower()) for separator in "-./")


def is_companion(path: str) -> bool:
    """Whether a name says that the file is no model of its own: a projector or an importance matrix."""
    parts = _PARTS.split(path.lower())
    name = path.lower().rpartition("/")[2]
    if "mmproj" in parts:
        return True
    # `model-imatrix-Q4_K_M.gguf` is a model that was made with one.
    return "imatrix" in parts and (name.startswith("imatrix") or not _TAG.search(name.removesuffix(_SUFFIX)))


def _whole(paths: Sequence[str], path: str, repository: str) -> tuple[str, ...]:
    shards = shard_names(path)
    absent = [name for name in shards if name not in paths]
    if absent:
        raise InputError(
            f"`{repository}` lacks {len(absent)} of {len(shards)} shards: {listed(absent, most=MOST_NAMED, in_backticks=True)}"
        )
    return shards


def _fits(path: str, pattern: str) -> bool:
    subject = path if "/" in pattern else path.rpartition("/")[2]
    return fnmatch.fnmatchcase(subject, pattern)


def _instead(paths: Sequence[str], models: Sequence[str], wanted: str) -> str:
    """What could be meant instead, or what there is."""
    if not models:
        return "it has no model in GGUF"
    near = difflib.get_close_matches(wanted, paths, n=1, cutoff=0.8)
    if near:
        return f"did you mean `{for_message(near[0])}`?"
    quants = sorted({quant_of(path) or path for path in models})
    return f"it has {listed(quants, most=MOST_NAMED, in_backticks=True)}"
