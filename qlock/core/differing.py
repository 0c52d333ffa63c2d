"""Every pinned fact that is not the same on two sides, with its topic.

Facts come leaf by leaf from the structs (``core.effects``), so that a new pin is found from the day it exists; files
are told in one line each. Names that people gave are no facts and are passed over.

Does not live here: what a topic means for the comparison (``core.validity``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.digest import is_digest
from qlock.core.effects import Change, changes, effect_of, keyed, what_changes_output
from qlock.core.lock import Lock, ModelPin, PointPin, PromptsPin, SuitePin, unset_pins
from qlock.core.sides import Side, device_of, engine_of, model_of, point_of, setting_of, suites_of
from qlock.core.verify import shown, side_shown

Topic = Literal[
    "forced",
    "engine",
    "device",
    "weights",
    "kv",
    "context",
    "template",
    "sampling",
    "sampling-keys",
    "tokenizer",
    "prompts",
    "schedule",
    "rider",
    "suite",
    "grader",
    "items",
    "behaviour",
    "answers",
    "timing",
    "label",
]

_MODEL_TOPICS: dict[str, Topic] = {
    "tokenizer_digest": "tokenizer",
    "template_digest": "template",
    "sampling": "sampling-keys",
}
_SETTING_TOPICS: dict[str, Topic] = {
    "context_tokens": "context",
    "cache_type_k": "kv",
    "cache_type_v": "kv",
}
_READ_BACK_TOPICS: dict[str, Topic] = {
    "layers": "weights",
    "layers_offloaded": "weights",
    "trained_context_tokens": "weights",
    "expert_count": "weights",
}
_SUITE_TOPICS: dict[str, Topic] = {
    "grade_version": "grader",
    "sampling": "sampling",
    "repeats": "label",
}
_POINT_TOPICS: dict[str, Topic] = {
    "repeatable": "label",
    "plain_text_nats": "behaviour",
    "canary": "behaviour",
}
_PROMPTS_TOPICS: dict[str, Topic] = {"items": "items", "items_digest": "items"}
_NAMES = frozenset({"name", "model", "setting", "engine", "device"})
"""What people called things."""
_EXPLAINED = frozenset(
    {"slots_requested", "slots_why", "probe", "repeatable_why", "weights_buffer", "cache_buffer"}
)
"""How another pin came about, or what follows from others: sizes of buffers from model, setting and device."""
_WHOLE = frozenset({"canary", "imatrix"})
"""Told in one line, however many of their leaves differ."""
_MISSING = "missing"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A difference that is not judged yet."""

    path: str
    topic: Topic
    a: str
    b: str
    why: str = ""


def found(a: Side, b: Side) -> list[Found]:
    """Every pinned fact that differs, in the order engine, device, model, setting, suites, point.

    Suites that only one side sits are not looked at: nothing of them is compared.
    """
    every = [
        *_forced(a, b),
        *_engine(engine_of(a), engine_of(b)),
        *_plain("device", device_of(a), device_of(b), otherwise="device"),
        *_model(model_of(a), model_of(b)),
        *_plain("setting", setting_of(a), setting_of(b), topics=_SETTING_TOPICS, otherwise="schedule"),
        *_suites(a, b),
        *_point(a, b),
        *_missing_on_both(a, b),
    ]
    return _without_overridden_template(every, a, b)


def _forced(a: Side, b: Side) -> Iterator[Found]:
    for fact in sorted({*a.forced, *b.forced}):
        yield Found(
            path=f"forced.{shown(fact)}",
            topic="forced",
            a="forced" if fact in a.forced else "as locked",
            b="forced" if fact in b.forced else "as locked",
            why="the run went on although this fact was not as locked",
        )


def _plain(
    path: str, a: Base, b: Base, *, otherwise: Topic, topics: dict[str, Topic] | None = None
) -> Iterator[Found]:
    """Leaf by leaf; the first part of a leaf's path says its topic, and names are passed over."""
    told: set[str] = set()
    for change in changes(a, b):
        field, _, rest = change.path.partition(".")
        topic = _topic(change, (topics or {}).get(field, otherwise))
        here = f"{path}.{field}" if field in _WHOLE or not rest else f"{path}.{shown(change.path)}"
        if field in _NAMES | _EXPLAINED or here in told:
            continue
        told.add(here)
        yield Found(
            path=here,
            topic=topic,
            a=side_shown(change.before, change.after),
            b=side_shown(change.after, change.before),
        )


def _topic(change: Change, topic: Topic) -> Topic:
    match change.effect:
        case "output":
            return topic
        case "timing":
            return "timing"
        case "note":
            return "label"


def _engine(a: facts.Engine, b: facts.Engine) -> Iterator[Found]:
    bare_a, bare_b = (msgspec.structs.replace(engine, file=()) for engine in (a, b))
    yield from _plain("engine", bare_a, bare_b, otherwise="engine")
    mine, theirs = keyed(a.file), keyed(b.file)
    for name in dict.fromkeys((*mine, *theirs)):
        one, other = mine.get(name), theirs.get(name)
        if one != other:
            yield _engine_file(f"engine.file.{shown(name)}", one, other)


def _engine_file(path: str, a: Base | None, b: Base | None) -> Found:
    topic: Topic = "label"
    for file in (a, b):
        if file is not None and effect_of(file) == "output":
            topic = "engine"
    match a, b:
        case facts.EngineFile(), facts.EngineFile():
            return Found(path=path, topic=topic, a=_brief(a.blake3), b=_brief(b.blake3), why=_code(a, b))
        case facts.EngineFile(), _:
            return Found(path=path, topic=topic, a=_brief(a.blake3), b="absent")
        case _:
            assert isinstance(b, facts.EngineFile)
            return Found(path=path, topic=topic, a="absent", b=_brief(b.blake3))


def _code(a: facts.EngineFile, b: facts.EngineFile) -> str:
    if a.blake3 == b.blake3 or not isinstance(a.code_digest, str) or not isinstance(b.code_digest, str):
        return ""
    return "rebuilt: its code is the same bytes" if a.code_digest == b.code_digest else "other code"


def brief(value: str) -> str:
    """The head of a digest, enough to tell two apart in a table; any other value whole."""
    return f"{value[:19]}…" if is_digest(value) else value


def quoted(value: str) -> str:
    """The same in backticks within a sentence; ``nothing`` where it is empty."""
    return f"`{brief(value)}`" if value else "nothing"


def _brief(digest: Any) -> str:
    return brief(digest) if isinstance(digest, str) else _MISSING


def _model(a: ModelPin, b: ModelPin) -> Iterator[Found]:
    bare_a, bare_b = (msgspec.structs.replace(model, file=(), recipe=()) for model in (a, b))
    yield from _plain("model", bare_a, bare_b, topics=_MODEL_TOPICS, otherwise="weights")
    if a.recipe != b.recipe:
        yield Found(path="model.recipe", topic="weights", a=_types(a), b=_types(b))
    same_tensors = isinstance(a.tensors_digest, str) and a.tensors_digest == b.tensors_digest
    topics: dict[str, Topic] = {
        "weights": "label" if same_tensors else "weights",
        "lora": "weights",
        "template": "template",
        "mmproj": "rider",
        "draft": "rider",
    }
    for role, topic in topics.items():
        mine, theirs = ([file for file in model.file if file.role == role] for model in (a, b))
        if [file.blake3 for file in mine] != [file.blake3 for file in theirs] or any(
            not isinstance(file.blake3, str) for file in mine
        ):
            why = "the tensors are the same" if topic == "label" else ""
            yield Found(
                path=f"model.file.{role}", topic=topic, a=_file_row(mine), b=_file_row(theirs), why=why
            )


def _types(model: ModelPin) -> str:
    return shown(tuple(row.type for row in model.recipe))


def _file_row(files: list[facts.ModelFile]) -> str:
    return ", ".join(_brief(file.blake3) for file in files[:4]) + ("…" if len(files) > 4 else "") or "absent"


def _suites(a: Side, b: Side) -> Iterator[Found]:
    mine, theirs = suites_of(a), suites_of(b)
    for name in mine:
        if name not in theirs:
            continue
        yield from _suite(f"suite.{name}", mine[name], theirs[name])
        yield from _reference(f"suite.{name}.reference", (a.lock, mine[name]), (b.lock, theirs[name]))
        versions = [
            sorted({sitting.grade_version for sitting in side.sittings.get(name, ())}) for side in (a, b)
        ]
        if versions[0] != versions[1] and all(versions):
            yield Found(
                path=f"suite.{name}.graded_with", topic="grader", a=shown(versions[0]), b=shown(versions[1])
            )
    if a.lock.frozen_date != b.lock.frozen_date:
        yield Found(
            path="frozen_date",
            topic="prompts" if _uses_date(a) or _uses_date(b) else "label",
            a=a.lock.frozen_date,
            b=b.lock.frozen_date,
        )


def _uses_date(side: Side) -> bool:
    return any(prompts.uses_date for prompts in point_of(side).prompts or ())


def _suite(path: str, a: SuitePin, b: SuitePin) -> Iterator[Found]:
    bare_a, bare_b = (msgspec.structs.replace(suite, file=(), points=()) for suite in (a, b))
    for raw in _plain(path, bare_a, bare_b, topics=_SUITE_TOPICS, otherwise="suite"):
        if raw.path == f"{path}.prompt.template":
            yield msgspec.structs.replace(raw, topic="template")
        elif raw.path.startswith(f"{path}.prompt."):
            yield msgspec.structs.replace(raw, topic="prompts")
        else:
            yield raw
    mine, theirs = keyed(a.file), keyed(b.file)
    for key in dict.fromkeys((*mine, *theirs)):
        one, other = (getattr(table.get(key), "blake3", None) for table in (mine, theirs))
        if one != other:
            yield Found(
                path=f"{path}.file.{shown(key)}",
                topic="template" if key == "template" else "items",
                a=_brief(one) if one else "absent",
                b=_brief(other) if other else "absent",
            )


def _reference(path: str, a: tuple[Lock, SuitePin], b: tuple[Lock, SuitePin]) -> Iterator[Found]:
    """What the points of a suite are held against: distances from two references do not compare."""
    (lock_a, suite_a), (lock_b, suite_b) = a, b
    mine, theirs = (keyed(lock.point).get(suite.reference) for lock, suite in (a, b))
    for table in ("model", "setting"):
        one, other = (
            None if pin is None else keyed(getattr(lock, table))[getattr(pin, table)]
            for lock, pin in ((lock_a, mine), (lock_b, theirs))
        )
        if (one and what_changes_output(one)) != (other and what_changes_output(other)):
            yield Found(
                path=f"{path}.{table}",
                topic="suite",
                a=_held_against(suite_a, one),
                b=_held_against(suite_b, other),
                why="held against another reference",
            )


def _held_against(suite: SuitePin, entry: Base | None) -> str:
    match entry:
        case None:
            return "no reference"
        case ModelPin(tensors_digest=digest):
            return f"{suite.reference} ({_brief(digest)})"
        case _:
            return suite.reference


def _point(a: Side, b: Side) -> Iterator[Found]:
    one, other = point_of(a), point_of(b)
    bare_one, bare_other = (
        msgspec.structs.replace(point, prompts=(), read_back=msgspec.UNSET) for point in (one, other)
    )
    yield from _plain("point", bare_one, bare_other, topics=_POINT_TOPICS, otherwise="behaviour")
    match one.read_back, other.read_back:
        case facts.ReadBack(), facts.ReadBack():
            topics: dict[str, Topic] = {
                **dict.fromkeys(setting_of(a).__struct_fields__, "schedule"),
                **_SETTING_TOPICS,
                **_READ_BACK_TOPICS,
            }
            yield from _plain(
                "point.read_back", one.read_back, other.read_back, topics=topics, otherwise="tokenizer"
            )
        case facts.ReadBack(), _:
            yield Found(path="point.read_back", topic="schedule", a="present", b=_MISSING)
        case _, facts.ReadBack():
            yield Found(path="point.read_back", topic="schedule", a=_MISSING, b="present")
        case _:
            pass
    common = suites_of(a).keys() & suites_of(b).keys()
    mine, theirs = _prompts(one), _prompts(other)
    for suite in sorted(common):
        match mine.get(suite), theirs.get(suite):
            case PromptsPin() as p, PromptsPin() as q:
                yield from _plain(f"point.prompts.{suite}", p, q, topics=_PROMPTS_TOPICS, otherwise="prompts")
            case p, q:
                yield Found(
                    path=f"point.prompts.{suite}",
                    topic="prompts",
                    a="present" if p else _MISSING,
                    b="present" if q else _MISSING,
                    why="" if p or q else "missing facts count as different",
                )


def _prompts(point: PointPin) -> dict[str, PromptsPin]:
    return {prompts.suite: prompts for prompts in point.prompts or ()}


def _missing_on_both(a: Side, b: Side) -> Iterator[Found]:
    """Pins that neither side knows. That a file is no ELF is known, so its code digest is not one of them."""
    topics: dict[str, Topic] = {
        "model.tensors_digest": "weights",
        "point.repeatable": "label",
        "point.plain_text_nats": "behaviour",
        "point.canary": "behaviour",
        "point.read_back": "schedule",
    }
    unset = _unset_of(a) & _unset_of(b)
    if _files_known(model_of(a)) == _files_known(model_of(b)) != ():
        unset.discard("model.tensors_digest")  # the same files hold the same tensors
    for path in sorted(unset):
        if path in topics:
            yield Found(
                path=path, topic=topics[path], a=_MISSING, b=_MISSING, why="missing facts count as different"
            )


def _files_known(model: ModelPin) -> tuple[str, ...]:
    """Digests of all files of a model; empty where one is not known."""
    digests = tuple(file.blake3 for file in model.file if isinstance(file.blake3, str))
    return digests if len(digests) == len(model.file) else ()


def _unset_of(side: Side) -> set[str]:
    point = point_of(side)
    prefixes = {f"model.{point.model}.": "model.", f"point.{point.name}.": "point."}
    return {
        short + pin.removeprefix(prefix)
        for pin in unset_pins(side.lock)
        for prefix, short in prefixes.items()
        if pin.startswith(prefix)
    }


def _without_overridden_template(raw: list[Found], a: Side, b: Side) -> list[Found]:
    """A model's own template changes nothing where every common suite brings another one in its place."""
    mine, theirs = suites_of(a), suites_of(b)
    common = mine.keys() & theirs.keys()
    if not common or not all(mine[name].prompt.template and theirs[name].prompt.template for name in common):
        return raw
    return [
        msgspec.structs.replace(one, topic="label", why="every suite brings a template of its own")
        if one.path == "model.template_digest"
        else one
        for one in raw
    ]
