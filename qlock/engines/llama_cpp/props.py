"""What a server says of itself at ``/props``, and what of it is not as it was told.

Without some of it there is nothing to hold on to: a server that does not say its name, its model or its context is not
one that was proven to be the one that was started. The rest is held against the command line, field by field.

Pure. Does not live here: asking for it (``server``), and what the log tells (``logbook``).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp.samplers import deviations as sampler_deviations
from qlock.errors import EngineError

CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""Never used: prompts are rendered by qlock and sent as token ids. A template of the model's own that llama.cpp cannot
parse would keep the server from starting; and a text of qlock's own is one that the server can be held to."""

_UNSAID = "the server does not say it"

Fact = TypeVar("Fact")


class Props(msgspec.Struct, frozen=True):
    """What qlock wants to know of ``/props``; a router, for one, says none of it."""

    total_slots: int | UnsetType = UNSET
    model_alias: str | UnsetType = UNSET
    model_path: str | UnsetType = UNSET
    bos_token: str | UnsetType = UNSET
    eos_token: str | UnsetType = UNSET
    default_generation_settings: dict[str, object] | UnsetType = UNSET
    chat_template: str | UnsetType = UNSET
    chat_template_tool_use: str = ""
    build_info: str | UnsetType = UNSET
    modalities: dict[str, bool] = {}
    """Kinds of input beside text; a build that knows of none does not say it."""


class Expected(Base, frozen=True, kw_only=True):
    """What a server must say of itself."""

    alias: str
    model: str
    build_info: str
    """Empty where the version text of its program does not tell."""
    passed: tuple[str, ...]
    """Options that it was given."""


def props_of(data: bytes) -> Props:
    """What a server answered.

    Raises:
        EngineError: It is nonsense.
    """
    try:
        return msgspec.json.decode(data, type=Props)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unverified("model_alias", f"`/props` holds {error}") from error


def refuse_another(props: Props, expected: Expected) -> None:
    """Refuse a server that is not the one that was started, or that has not the model that it was given.

    Raises:
        EngineError: It is another one, or does not say which.
    """
    alias = told("model_alias", props.model_alias)
    if alias != expected.alias:
        raise EngineError(
            f"another server answered: got the model `{for_message(alias)}`, expected `{expected.alias}`"
        )
    path = told("model_path", props.model_path)
    if path != expected.model:
        raise EngineError(f"got `model_path = {for_message(path)}`, expected `{for_message(expected.model)}`")


def context_tokens(props: Props) -> int:
    """Of the server's one slot.

    Raises:
        EngineError: It does not say.
    """
    settings = told("context_tokens", props.default_generation_settings)
    found = settings.get("n_ctx")
    if not isinstance(found, int):
        raise unverified("context_tokens")
    return found


def deviations(props: Props, expected: Expected) -> list[Deviation]:
    """What a server says of its template, its samplers, its build and its inputs that is not as it was told."""
    settings = told("context_tokens", props.default_generation_settings)
    found = sampler_deviations(settings.get("params"), expected.passed)
    if "--chat-template" in expected.passed:
        found += _deviation("chat_template", CHAT_TEMPLATE, props.chat_template)
        found += _deviation("chat_template_tool_use", "", props.chat_template_tool_use)
    if expected.build_info:
        found += _deviation("build_info", expected.build_info, props.build_info)
    inputs = sorted(name for name, is_on in props.modalities.items() if is_on)
    found += _deviation("modalities", "", ", ".join(inputs))
    return found


def _deviation(name: str, expected: str, got: str | UnsetType) -> list[Deviation]:
    if got == expected:
        return []
    wanted = for_message(expected) or "none"
    if got is UNSET:
        return [Deviation(name=name, expected=wanted, found="missing", why=_UNSAID)]
    return [Deviation(name=name, expected=wanted, found=for_message(got) or "none")]


def told(fact: str, value: Fact | UnsetType) -> Fact:
    """A fact that was told.

    Raises:
        EngineError: It was not.
    """
    if value is UNSET:
        raise unverified(fact)
    return value


def unverified(fact: str, why: str = _UNSAID) -> EngineError:
    """The error to raise where a fact cannot be verified."""
    return EngineError(f"cannot verify `{fact}`: {why}")
