"""Suites and engines found by name: a file or folder in ``qlock/suites`` or ``qlock/engines`` is a kind.

No list is kept anywhere: adding one file adds one kind, called as the file is, with dashes for its underscores. Only
names that no file can have, and kinds that nobody is offered, are said here. Does not live here: what a suite or an
engine must be (their folders' ``interface``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from qlock.core.base import Base, Positive
from qlock.core.canon import known_keys, to_struct, to_whole_struct, unknown_key
from qlock.core.escape import for_message
from qlock.core.exchange import Outcome, Reading
from qlock.core.lock import SuitePin
from qlock.core.rules import Rule
from qlock.core.source import shown_source
from qlock.core.spec import SuiteSpec
from qlock.core.words import did_you_mean
from qlock.engines.interface import Engine
from qlock.errors import InputError
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf, Trial

_CALLED = {"llama_cpp": "llama.cpp"}
"""Kinds whose names are no file's name with dashes, by the module."""
_UNOFFERED = frozenset({"replay"})
"""Kinds that work and measure nothing: no message proposes them."""


def _of_any(data: Data, params: Any) -> str:  # noqa: ARG001 - stands in for a suite's own
    """The data of most suites are neither token ids nor answers."""
    return ""


def _reads_nothing(item: Item, answer: Answer, params: Any) -> Reading | None:  # noqa: ARG001 - stands in for a suite's own
    """Most suites read nothing but a score out of an answer."""
    return None


class SuiteKind(Base, frozen=True, kw_only=True):
    """A suite, as its module defines it; see ``suites.interface``."""

    kind: str
    ask_version: Positive
    grade_version: Positive
    sources: tuple[str, ...]
    gates: tuple[Rule, ...] = ()
    params: Any
    """The struct of the suite's own keys."""
    items: Callable[[Data, Any, TokensOf], tuple[Item, ...]]
    ask: Callable[[Item, Any], Play]
    grade: Callable[[Item, Answer, Any], Outcome]
    trials: Callable[[tuple[Item, ...], Any], tuple[Trial, ...]]
    needs_reference: bool = False
    tokenizer_of: Callable[[Data, Any], str] = _of_any
    tensors_of: Callable[[Data, Any], str] = _of_any
    read: Callable[[Item, Answer, Any], Reading | None] = _reads_nothing


def suite_kind(kind: str, *, where: str = "kind") -> SuiteKind:
    """The suite called ``kind``.

    Raises:
        InputError: There is none; the known ones are named.
    """
    module = _member("qlock.suites", kind, what="suite kind", where=where)
    parts = vars(module)
    return SuiteKind(
        kind=kind,
        ask_version=parts["ASK_VERSION"],
        grade_version=parts["GRADE_VERSION"],
        sources=parts["SOURCES"],
        gates=parts["GATES"],
        params=parts["Params"],
        items=parts["items"],
        ask=parts["ask"],
        grade=parts["grade"],
        trials=parts["trials"],
        needs_reference=parts.get("REFERENCE", False),
        tokenizer_of=parts.get("tokenizer_of", _of_any),
        tensors_of=parts.get("tensors_of", _of_any),
        read=parts.get("read", _reads_nothing),
    )


def engine_opener(kind: str) -> Callable[..., Engine]:
    """What opens an engine called ``kind``.

    Raises:
        InputError: There is none; the known ones are named.
    """
    module = _member("qlock.engines", kind, what="engine kind", where="engine.kind")
    opener: Callable[..., Engine] = vars(module)["open_engine"]
    return opener


class EngineShape(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine does several items at once."""

    slots_max: int
    """Rows of a decode in one process."""
    replicas_max: int
    """Processes."""


def engine_shape(kind: str) -> EngineShape:
    """How an engine called ``kind`` does several items at once.

    Raises:
        InputError: There is none; the known ones are named.
    """
    parts = vars(_member("qlock.engines", kind, what="engine kind", where="engine.kind"))
    return EngineShape(slots_max=parts["SLOTS_MAX"], replicas_max=parts["REPLICAS_MAX"])


def members(package: str) -> tuple[str, ...]:
    """Names of the members of a folder, sorted: every module that is not the interface."""
    path = importlib.import_module(package).__path__
    return tuple(sorted(module.name for module in pkgutil.iter_modules(path) if module.name != "interface"))


def _member(package: str, name: str, *, what: str, where: str) -> ModuleType:
    known = {_CALLED.get(module, module.replace("_", "-")): module for module in members(package)}
    if name not in known:
        offered = [kind for kind in known if kind not in _UNOFFERED]
        raise InputError(
            f"got `{for_message(name)}`, expected a known {what}: {', '.join(offered)}",
            hint=did_you_mean(name, offered),
        ).within(where)
    return importlib.import_module(f"{package}.{known[name]}")


def items_of(
    kind: SuiteKind, params: Any, pin: SuitePin, data: Data, tokens_of: TokensOf
) -> tuple[Item, ...]:
    """The items of a suite, before its limit.

    Raises:
        InputError: A fault in its file, said with that file's path.
    """
    try:
        return kind.items(data, params, tokens_of)
    except InputError as error:
        raise _in_source(error, kind, pin) from None


def tokenizer_of(kind: SuiteKind, params: Any, pin: SuitePin, data: Data) -> str:
    """The tokenizer that a suite's data is made of; empty where any will do.

    Raises:
        InputError: A fault in its file, said with that file's path.
    """
    try:
        return kind.tokenizer_of(data, params)
    except InputError as error:
        raise _in_source(error, kind, pin) from None


def _in_source(error: InputError, kind: SuiteKind, pin: SuitePin) -> InputError:
    sources = [shown_source(file.requested) for file in pin.file if file.key in kind.sources]
    return error.in_file(sources[0]) if len(sources) == 1 else error


def params_of(kind: SuiteKind, suite: SuiteSpec | SuitePin, *, where: str) -> Any:
    """The suite's own keys as its struct.

    Raises:
        InputError: A key is unknown to the suite and to the spec, missing, or of another type.
    """
    own = known_keys(kind.params, "")
    common = tuple(name for name in SuiteSpec.__struct_fields__ if name != "params")
    for key in suite.params:
        if key not in own:
            raise unknown_key(key, own + common).within(where)
    match suite:
        case SuitePin():
            read = to_whole_struct
        case SuiteSpec():
            read = to_struct
    try:
        return read(suite.params, kind.params)
    except InputError as error:
        raise error.within(where) from None
