"""Chat templates of real models, and conversations of all shapes: the same bytes as transformers gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.template import CompiledTemplate, Rendered, RenderRequest, Template
from qlock.errors import InputError

DATE = "2026-01-02"

SYSTEM: dict[str, object] = {"role": "system", "content": "Sei kurz."}
USER: dict[str, object] = {"role": "user", "content": "Grüß <b>dich</b> & 'alle' 👋\n"}
ASSISTANT: dict[str, object] = {"role": "assistant", "content": "Ja."}
THOUGHT: dict[str, object] = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
CALL: dict[str, object] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "abcdefgh1",
            "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}},
        }
    ],
}
CALLED: dict[str, object] = {
    "role": "tool",
    "tool_call_id": "abcdefgh1",
    "name": "weather",
    "content": '{"t": 3.5}',
}
TOOL: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'The weather of "today" & <tomorrow>, d\'accord',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Stadt"},
                "days": {"type": "integer", "default": 3},
                "unit": {"type": "string", "enum": ["°C", "°F"]},
            },
            "required": ["city"],
        },
    },
}
CONVERSATIONS: dict[str, tuple[dict[str, object], ...]] = {
    "user alone": (USER,),
    "with a system turn": (SYSTEM, USER),
    "several turns": (SYSTEM, USER, ASSISTANT, USER),
    "empty content": ({"role": "user", "content": ""},),
    "a tool call and its result": (SYSTEM, USER, CALL, CALLED, ASSISTANT, USER),
    "a tool call without content": (USER, {**CALL, "content": None}, CALLED),
    "reasoning": (USER, THOUGHT, USER),
    "reasoning by another name": (USER, {"role": "assistant", "content": "4", "reasoning": "2 + 2"}, USER),
    "content in parts": ({"role": "user", "content": [{"type": "text", "text": "part"}]},),
    "a developer": ({"role": "developer", "content": "Sei kurz."}, USER),
    "roles that do not alternate": (ASSISTANT, ASSISTANT),
    "no turns at all": (),
}


def render(template: Template, request: RenderRequest) -> Rendered:
    return CompiledTemplate(template).render(request)


def asked(*messages: dict[str, object], **fields: Any) -> RenderRequest:
    return RenderRequest(messages=messages, frozen_date=DATE, **fields)


Oracle = Callable[[str, RenderRequest], str]


@pytest.fixture(scope="session")
def transformers_text() -> Oracle:
    """What transformers renders, on the frozen day; raises whatever it raises."""
    from transformers.utils import chat_template_utils

    class FrozenClock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> FrozenClock:
            return cls(2026, 1, 2)

    def text(source: str, request: RenderRequest) -> str:
        switches = (
            {}
            if request.thinking is None
            else {"enable_thinking": request.thinking, "thinking": request.thinking}
        )
        before = chat_template_utils.datetime
        chat_template_utils.datetime = FrozenClock
        try:
            texts, _ = chat_template_utils.render_jinja_template(
                # What `apply_chat_template` does to messages and special tokens before it calls this.
                [chat_template_utils._normalize_chat_messages(list(request.messages))],
                tools=list(request.tools) or None,
                chat_template=source,
                add_generation_prompt=request.add_generation_prompt,
                **{"bos_token": "<s>", "eos_token": "</s>", **switches, **request.variables},
            )
        finally:
            chat_template_utils.datetime = before
        rendered: str = texts[0]
        return rendered

    return text


# --- against transformers ---------------------------------------------------------------------------------


@cache
def compiled(source: str) -> CompiledTemplate:
    return CompiledTemplate(Template(text=source, bos_token="<s>", eos_token="</s>"))


def differences(
    source: str, conversation: tuple[dict[str, object], ...], oracle: Oracle
) -> tuple[list[str], int]:
    """Where our text is not that of transformers, and how many texts both gave."""
    found = []
    rendered = 0
    for tools in ((), (TOOL,)):
        for thinking in (None, True, False):
            for header in (True, False):
                request = asked(*conversation, tools=tools, thinking=thinking, add_generation_prompt=header)
                expected: str | None
                try:
                    expected = oracle(source, request)
                except Exception:  # noqa: BLE001 - whatever it raises, ours must raise an InputError
                    expected = None
                try:
                    ours = compiled(source).render(request).text
                except InputError as error:
                    ours = None
                    why = str(error)
                if ours != expected:
                    found.append(
                        f"tools {bool(tools)}, thinking {thinking}: {ours or why!r}, expected {expected!r}"
                    )
                rendered += expected is not None
    return found, rendered


SMALL = (
    "{{ bos_token }}{% for m in messages %}\n  {{ m | tojson(indent=2) }}\n{% endfor %}\n{{ tools | tojson }}",
    "{{ strftime_now('%A, %d %B %Y') }}{{ messages | map(attribute='role') | join(',') }}{{ enable_thinking }}",
    "{% for m in messages %}{% generation %}{% set x = m.role %}{{ x }}{% endgeneration %}{{ x }}{% endfor %}",
    "{% for m in messages if m.content is string %}{{ m.content | trim }}{% endfor %}{{ thinking }}",
    "{% if messages[0].role != 'user' %}{{ raise_exception('no') }}{% endif %}{{ messages[0]['content'][0] }}",
)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_small_templates_render_as_in_transformers(conversation: str, transformers_text: Oracle) -> None:
    for source in SMALL:
        assert differences(source, CONVERSATIONS[conversation], transformers_text)[0] == []


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_templates_of_real_models_render_as_in_transformers(
    conversation: str, templates_folder: Path, transformers_text: Oracle
) -> None:
    files = sorted(templates_folder.glob("*.jinja"))
    assert len(files) >= 60
    found = {
        file.name: differences(file.read_text(), CONVERSATIONS[conversation], transformers_text)
        for file in files
    }
    assert {name: lines for name, (lines, _) in found.items() if lines} == {}
    # Each conversation is one that at least eight models take, under all twelve requests.
    assert sum(rendered == 12 for _, rendered in found.values()) >= 8


@pytest.mark.parametrize(
    "file, uses_date",
    [("openai-gpt-oss-120b", True), ("meta-llama-Llama-3.2-3B-Instruct", True), ("Qwen-Qwen3-0.6B", False)],
)
def test_models_whose_prompt_holds_the_day(*, file: str, uses_date: bool, templates_folder: Path) -> None:
    source = (templates_folder / f"{file}.jinja").read_text()
    assert render(Template(text=source), asked(SYSTEM, USER)).uses_date is uses_date


# --- laws -------------------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.dictionaries(
    st.sampled_from(["role", "content", "reasoning", "thinking", "reasoning_content", "tool_calls"])
    | st.text(),
    JSON_VALUES,
)


@given(st.lists(MESSAGES, max_size=4))
def test_every_conversation_is_written_as_in_transformers(
    transformers_text: Oracle, messages: list[dict[str, object]]
) -> None:
    source = "{{ messages | tojson }}{{ messages }}"
    assert render(Template(text=source), asked(*messages)).text == transformers_text(source, asked(*messages))
