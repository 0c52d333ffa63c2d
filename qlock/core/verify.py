"""Holding what was seen against what is locked: facts in, findings out, no I/O.

Rules, in the order in which a run meets them:

1. model files: size and digest of every file of every point that is asked;
2. suite files: the same;
3. device: CPU, cards, driver;
4. engine files: every file that the running process mapped, none more, none fewer;
5. read-back: what the running engine says of its setting;
6. prompts: items, rendered text and token ids of every suite;
7. canaries: tokens and logits of the fixed prompts;
8. after the last item: rules 1, 2 and 4 again, and that kept files of a reference were not touched.

Every finding is collected; none stops the others. What was locked and could not be seen is a finding too ("cannot
verify"): it is not a pass. Which leaves there are comes from the structs (``core.effects``), so a new pin is checked
from the day it exists.

Does not live here: seeing (``flows.look``), and what a finding leads to (``flows.run``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from qlock.core.base import Base
from qlock.core.canon import json_bytes
from qlock.core.effects import Change, Effect, changes, table_changes
from qlock.core.escape import for_message
from qlock.core.facts import Buffer, ReadBack, Setting
from qlock.core.memory import is_on_card

Rule = Literal[
    "model-files",
    "suite-files",
    "device",
    "engine-files",
    "read-back",
    "prompts",
    "canaries",
    "after-the-run",
]

_TAKEN_OVER = tuple(name for name in Setting.__struct_fields__ if name in ReadBack.__struct_fields__)
READ_BACK = (*_TAKEN_OVER, "layers_offloaded", "weights_buffer", "cache_buffer")
"""What of a setting the running engine is asked for (rule 5)."""

_DIGEST = re.compile("(?:sha256|blake3):[0-9a-f]{64}")
_DIGITS = 12

_BRING_BACK = "bring back the locked file, or take the new one with `qlock resolve --upgrade NAME`"
_WRITE_AGAIN = "remove the file and the journal beside it: then both are written again"
_KEPT = re.compile(r"suite\..+\.reference\.kept(?:\.[a-z0-9_.]+)?")
_SAY_WHERE = "say where it lies with --models DIR (a folder that holds it under its own name)"

_REMEDY: dict[str, str] = {
    "model-files": _BRING_BACK,
    "suite-files": _BRING_BACK,
    "device": "run on the locked device, or resolve for this one",
    "engine-files": "use the locked build, or resolve again for this one",
    "read-back": "the engine did not do as it was told; look at its log",
    "prompts": "the template, tokenizer or items changed; resolve again",
    "canaries": "the engine computes something else than at resolve; resolve again, or find out why",
    "after-the-run": "something changed while the run went on; this run cannot be trusted",
}


class Part(Base, frozen=True, kw_only=True):
    """One leaf of a file that is not as locked."""

    name: str
    """``size_bytes``."""
    expected: str
    found: str


class Finding(Base, frozen=True, kw_only=True):
    """One thing that was seen and is not as locked."""

    rule: Rule
    where: str
    """``model.Q4_K_M.file.q4.gguf.blake3``."""
    expected: str
    found: str
    """``missing`` when it could not be seen."""
    effect: Effect
    why: str = ""
    """Why it could not be seen; or what follows from this difference."""
    parts: tuple[Part, ...] = ()
    """Of a file of which several leaves are not as locked: each of them. All are in ``expected`` and ``found`` too."""

    @property
    def places(self) -> tuple[str, ...]:
        """Every leaf that it is about, by its whole name."""
        return tuple(f"{self.where}.{part.name}" for part in self.parts) or (self.where,)

    @property
    def change(self) -> str:
        """What of a file changed, in one line; digests by their first digits. Empty where it is one leaf."""
        return ", ".join(f"{one.name} {_brief(one.expected)} → {_brief(one.found)}" for one in self.parts)

    @property
    def remedy(self) -> str:
        """One thing to do."""
        if (self.expected, self.found) == ("present", "missing") and self.rule in (
            "model-files",
            "suite-files",
        ):
            return _SAY_WHERE
        if self.rule == "suite-files" and _KEPT.fullmatch(self.where):
            # No lock names what a reference said: it is kept to be read again, and can be had again.
            return _WRITE_AGAIN
        return _REMEDY[self.rule]


def refuses(finding: Finding) -> bool:
    """Whether a run must not go on: everything that can change output, and all that could not be seen."""
    return finding.effect == "output"


def differences(
    rule: Rule, where: str, locked: Base, found: Base, *, effect: Effect = "output"
) -> list[Finding]:
    """A finding for every leaf of ``locked`` that ``found`` has otherwise, and for what only one of them has.

    An entry of a table that only one has gives one finding, not one for each of its leaves; so does a file of which
    several leaves differ, since its size and digests are one change.
    """
    return _findings(rule, changes(locked, found, path=where, effect=effect))


def entries(
    rule: Rule, table: str, locked: Iterable[Base], found: Iterable[Base], *, effect: Effect = "output"
) -> list[Finding]:
    """Findings for two tables of named entries, such as the files of a model."""
    return _findings(rule, table_changes(tuple(locked), tuple(found), path=table, effect=effect))


def _findings(rule: Rule, compared: Iterable[Change]) -> list[Finding]:
    groups: dict[tuple[str, Effect], list[Finding]] = {}
    for change in compared:
        groups.setdefault((change.file or change.path, change.effect), []).append(_finding(rule, change))
    return [found[0] if len(found) == 1 else _of_file(found, where) for (where, _), found in groups.items()]


def _of_file(leaves: list[Finding], where: str) -> Finding:
    """One finding for several leaves of a file."""
    parts = tuple(
        Part(name=leaf.where.removeprefix(f"{where}."), expected=leaf.expected, found=leaf.found)
        for leaf in leaves
    )
    return replace(
        leaves[0],
        where=where,
        expected=", ".join(f"{part.name} {part.expected}" for part in parts),
        found=", ".join(f"{part.name} {part.found}" for part in parts),
        parts=parts,
    )


def _finding(rule: Rule, change: Change) -> Finding:
    expected, found = change.before, change.after
    return Finding(
        rule=rule,
        where=change.path,
        expected=side_shown(expected, found),
        found=side_shown(found, expected),
        effect=change.effect,
        why=_within_arrays(expected, found),
    )


def side_shown(value: Any, other: Any) -> str:
    """One side of a difference: an entry is present or absent, a value is shown or missing."""
    match value:
        case Base():
            return "present"
        case msgspec.UNSET:
            return "absent" if isinstance(other, Base) else "missing"
        case _:
            return shown(value)


def _within_arrays(expected: Any, found: Any) -> str:
    """Which values only one of two arrays has, since both may be too long to be shown whole."""
    match expected, found:
        case ((tuple() | list()), (tuple() | list())):
            lost = [entry for entry in expected if entry not in found]
            new = [entry for entry in found if entry not in expected]
            words = [f"only locked: {shown(lost)}"] * bool(lost) + [f"only found: {shown(new)}"] * bool(new)
            return "; ".join(words) or "the same values in another order or number"
        case _:
            return ""


def missing(rule: Rule, where: str, expected: str, why: str) -> Finding:
    """Something locked that could not be seen."""
    return Finding(rule=rule, where=where, expected=expected, found="missing", effect="output", why=why)


def shown(value: Any) -> str:
    """A value for people: bounded, without control characters."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple() | list():
            return for_message(", ".join(str(entry) for entry in value))
        case dict():
            return for_message(json_bytes(value).decode())
        case _:
            return for_message(str(value))


def _brief(text: str) -> str:
    """A digest by its first digits, behind the name of its kind; other text as it is."""
    return f"{text.partition(':')[2][:_DIGITS]}…" if _DIGEST.fullmatch(text) else text


_Place = Literal["the CPU's memory alone", "memory of a card", "memory of a card alone", "any memory"]


def read_back_findings(where: str, setting: Setting, read_back: ReadBack) -> list[Finding]:
    """Rule 5: what the engine says of itself against what it was told."""
    told = {name: getattr(setting, name) for name in _TAKEN_OVER}
    told["layers_offloaded"] = min(setting.gpu_layers, read_back.layers)
    found = [
        _told_otherwise(f"{where}.{name}", shown(value), shown(getattr(read_back, name)))
        for name, value in told.items()
        if getattr(read_back, name) != value
    ]
    if read_back.layers_offloaded == told["layers_offloaded"]:
        found += _placement(where, setting, read_back)
    return found


def _placement(where: str, setting: Setting, read_back: ReadBack) -> list[Finding]:
    """Whether weights and cache lie where the number of layers on a card says."""
    weights: _Place = "memory of a card" if setting.gpu_layers else "the CPU's memory alone"
    cache: _Place = "any memory"
    if setting.gpu_layers == 0 or not setting.kv_offload:
        cache = "the CPU's memory alone"
    elif setting.gpu_layers >= read_back.layers:
        cache = "memory of a card alone"
    return [
        _told_otherwise(f"{where}.{name}", place, ", ".join(shown(one.place) for one in buffers) or "none")
        for name, place, buffers in (
            ("weights_buffer", weights, read_back.weights_buffer),
            ("cache_buffer", cache, read_back.cache_buffer),
        )
        if not _lies(buffers, place)
    ]


def _lies(buffers: tuple[Buffer, ...], place: _Place) -> bool:
    of_cards = [is_on_card(one) for one in buffers]
    match place:
        case "the CPU's memory alone":
            return bool(of_cards) and not any(of_cards)
        case "memory of a card":
            return any(of_cards)
        case "memory of a card alone":
            return bool(of_cards) and all(of_cards)
        case "any memory":
            return bool(of_cards)


def _told_otherwise(where: str, expected: str, found: str) -> Finding:
    return Finding(rule="read-back", where=where, expected=expected, found=found, effect="output")
