"""What a new lock would change in an old one, and whether anybody asked for it.

A pin that is there is kept; nothing moves unasked. A changed spec is asking. A file, a data set or a build that
changed by itself is not: then ``resolve`` says what moved and waits for ``--upgrade NAME``.

Does not live here: making the new lock (``flows.resolve``).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from msgspec import UNSET

from qlock.core.base import Base
from qlock.core.effects import what_changes_output
from qlock.core.facts import Device, Engine
from qlock.core.lock import Lock, ModelPin, PointPin, SuitePin, unset_pins
from qlock.core.recipe import RecipeDifference
from qlock.flows.keeping import Kept
from qlock.flows.pinning import fallen_back

_NAMES = ("name = ", "suite = ", "pin = ", "type = ", "variation = ")
"""What tells the entries of a table apart."""


class Move(Base, frozen=True, kw_only=True):
    """One pin that would become another one although nobody asked."""

    name: str
    """What to give to ``--upgrade``."""
    what: str
    """``model``, ``suite``, ``engine``, ``device``, ``setting`` or ``point``."""
    why: str


def moves(old: Lock, new: Lock) -> tuple[Move, ...]:
    """Every unasked move from ``old`` to ``new``."""
    filled_in = frozenset(unset_pins(old))
    models = {pin.name: pin for pin in old.model}
    found = [
        Move(name=pin.name, what="model", why=model_why(models[pin.name], pin))
        for pin in new.model
        if pin.name in models and _has_moved(models[pin.name], pin, filled_in)
    ]
    found += [
        Move(name=pin.name, what="suite", why=why)
        for pin in new.suite
        for before in old.suite
        if before.name == pin.name and (why := _suite_why(before, pin))
    ]
    tables: tuple[tuple[str, tuple[Engine | Device, ...], tuple[Engine | Device, ...]], ...] = (
        ("engine", old.engine, new.engine),
        ("device", old.device, new.device),
    )
    for what, a, b in tables:
        for before in a:
            for after in b:
                if (
                    before.name == after.name
                    and _was_seen(before)
                    and what_changes_output(before) != what_changes_output(after)
                ):
                    changed = _changed(what_changes_output(before), what_changes_output(after))
                    found.append(Move(name=after.name, what=what, why=", ".join(changed[:5])))
    found += [
        Move(name=after.name, what="setting", why=f"falls back to 1 slot: {after.slots_why}")
        for after in new.setting
        for before in old.setting
        if before != after and after.slots_why and fallen_back(before, after.slots_why) == after
    ]
    return tuple(found)


def _has_moved(before: ModelPin, after: ModelPin, filled_in: frozenset[str]) -> bool:
    """Whether anything that was pinned of the same request differs; what was missing and is known now is no move."""
    if (before.requested, before.trained) != (after.requested, after.trained):
        return False
    now = {
        leaf: value
        for leaf, value in what_changes_output(after).items()
        if f"model.{before.name}.{leaf}" not in filled_in
    }
    return what_changes_output(before) != now


def _was_seen(pin: Engine | Device) -> bool:
    """Whether a lock says anything of an engine: without a proof, nobody has looked at it."""
    match pin:
        case Engine(file=()):
            return False
        case _:
            return True


def point_moves(kept: Kept, new: Lock, moved: tuple[Move, ...]) -> tuple[Move, ...]:
    """Points that behave otherwise, or are asked otherwise, although all that they stand on is as the old lock has it.

    Args:
        kept: Points and prompts of the old lock on the same ground.
        new: The new lock; some of those points were proved again for it.
        moved: The other moves: what follows from one of them is none of its own.
    """
    if any(move.what in ("engine", "device") for move in moved):
        return ()
    settings = {move.name for move in moved if move.what == "setting"}
    found = []
    for after in new.point:
        if after.setting not in settings:
            changed = _changed_point(kept, after)
            if changed:
                found.append(Move(name=after.name, what="point", why=", ".join(changed[:5])))
    return tuple(found)


def _changed_point(kept: Kept, after: PointPin) -> list[str]:
    before = kept.points.get(after.name)
    if before is not None:
        return _changed(what_changes_output(before), what_changes_output(after))
    asked = kept.prompts.get(after.name, {})
    return [
        f"prompts.{now.suite}.{leaf}"
        for now in after.prompts or ()
        if now.suite in asked
        for leaf in _changed(what_changes_output(asked[now.suite]), what_changes_output(now))
    ]


def model_why(before: ModelPin, after: ModelPin, recipes: RecipeDifference | None = None) -> str:
    """Which parts of a model differ, and which are identical.

    Where the weights of one side were never here, its recipe stands for its tensors: tensor by tensor where ``recipes``
    are at hand, else by the totals of each type, which is all that a lock holds.
    """
    tensors = (before.tensors_digest, after.tensors_digest)
    if recipes is None:
        kind, recipe = "recipe by type", _recipe_why(before, after)
    else:
        kind, recipe = "recipe", "" if recipes.same else recipes.sentence("the pinned file", "the new one")
    parts = {kind: bool(recipe)} if UNSET in tensors else {"tensors": tensors[0] != tensors[1]}
    parts |= {
        "tokenizer": before.tokenizer_digest != after.tokenizer_digest,
        "template": before.template_digest != after.template_digest,
        "metadata": before.metadata_digest != after.metadata_digest,
    }
    details = [recipe] if recipe else []
    if before.imatrix.get("dataset") != after.imatrix.get("dataset"):
        details.append("imatrix data set differs")
    if UNSET in tensors and not recipe:
        details.append("the bytes of the tensors were not compared")
    elif not any(parts.values()):
        return "the file has other bytes, its tensors and metadata are the same"
    same = [name for name, differs in parts.items() if not differs]
    differ = [name for name, differs in parts.items() if differs]
    says: Callable[[list[str]], str] = ", ".join
    told = (
        [f"{says(differ)} {'differs' if len(differ) == 1 and differ != ['tensors'] else 'differ'}"]
        if differ
        else []
    )
    told += [f"{says(same)} identical"] if same else []
    return "; ".join([*told, *details])


def _recipe_why(before: ModelPin, after: ModelPin) -> str:
    """How many tensors have another type, told from the totals of each type; empty where the totals are equal."""
    a = {row.type: row.tensors for row in before.recipe}
    b = {row.type: row.tensors for row in after.recipe}
    if a == b:
        return ""
    count, others = sum(a.values()), sum(b.values())
    if count != others:
        return f"{others} tensors instead of {count}"
    changed = sum(max(0, number - b.get(name, 0)) for name, number in a.items())
    return f"at least {changed} of {count} tensors have another type"


def _suite_why(before: SuitePin, after: SuitePin) -> str:
    if before.kind != after.kind:
        return ""
    asked = {file.key: file for file in before.file}
    for file in after.file:
        old = asked.get(file.key)
        if old is not None and old.requested == file.requested and old.sha256 != file.sha256:
            return f"{file.key}: the file changed"
    if before.ask_version != after.ask_version:
        return f"this qlock asks version {after.ask_version} of it, the lock has {before.ask_version}"
    if before.grade_version != after.grade_version:
        return f"this qlock grades version {after.grade_version} of it, the lock has {before.grade_version}"
    return ""


def _changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def text_difference(old: bytes, new: bytes, *, name: str) -> str:
    """A unified diff of two locks."""
    diff = difflib.unified_diff(
        list(_placed(old)),
        list(_placed(new)),
        fromfile=f"{name} (as it is)",
        tofile=f"{name} (as it would be)",
    )
    return "".join(line[0] + line.partition("\0")[2] if "\0" in line else line for line in diff)


def _placed(data: bytes) -> Iterator[str]:
    """Each line behind the entry that it stands in: alike lines of a thousand entries are taken for one another else."""
    table = row = ""
    for line in data.decode(errors="replace").splitlines(keepends=True):
        if line.startswith("["):
            table, row = (table, line) if "." in line else (line, "")
        elif line.startswith(_NAMES):
            table, row = (table, row + line) if row else (table + line, "")
        yield f"{table}{row}\0{line}"
