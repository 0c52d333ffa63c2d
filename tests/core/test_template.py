"""Chat templates, with small ones of our own; real ones stand in test_template_models.py."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qlock.core.template import (
    CompiledTemplate,
    Rendered,
    RenderRequest,
    Template,
    starts_with_bos,
)
from qlock.errors import InputError

DATE = "2026-01-02"

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

SYSTEM: dict[str, object] = {"role": "system", "content": "Sei kurz."}
USER: dict[str, object] = {"role": "user", "content": "Grüß dich 👋"}
ASSISTANT: dict[str, object] = {"role": "assistant", "content": "Ja."}
TOOL: dict[str, object] = {"type": "function", "function": {"name": "weather"}}


def render(template: Template, request: RenderRequest) -> Rendered:
    return CompiledTemplate(template).render(request)


def asked(*messages: dict[str, object], **fields: Any) -> RenderRequest:
    return RenderRequest(messages=messages, frozen_date=DATE, **fields)


def text_of(source: str, *messages: dict[str, object], **fields: Any) -> str:
    return render(Template(text=source, bos_token="<s>", eos_token="</s>"), asked(*messages, **fields)).text


def fault_of(source: str, *messages: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        text_of(source, *messages)
    return str(caught.value)


# --- examples ---------------------------------------------------------------------------------------------


def test_a_conversation_in_chatml() -> None:
    assert render(Template(text=CHATML), asked(SYSTEM, {"role": "user", "content": "Hi"})) == Rendered(
        text="<|im_start|>system\nSei kurz.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        uses_date=False,
    )


def test_without_the_header_of_the_next_turn() -> None:
    assert text_of(CHATML, ASSISTANT, add_generation_prompt=False) == (
        "<|im_start|>assistant\nJa.<|im_end|>\n"
    )


def test_blocks_swallow_the_newline_behind_and_the_blanks_before_them() -> None:
    assert text_of("a\n  {% if true %}\nb\n  {% endif %}\nc\n") == "a\nb\nc"


def test_loops_may_be_left_and_rounds_skipped() -> None:
    source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert text_of(source) == "023"


def test_what_the_model_wrote_may_be_marked_and_variables_stay_inside() -> None:
    source = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{{ messages[0].role }}{% endgeneration %}{{ x }}"
    assert text_of(source, USER) == "2user1"


@pytest.mark.parametrize(
    "source, expected",
    [
        ("{{ x | tojson }}", '{"b": "<ü\'&>", "a": [1, null]}'),
        (
            "{{ x | tojson(indent=1, sort_keys=true) }}",
            '{\n "a": [\n  1,\n  null\n ],\n "b": "<ü\'&>"\n}',
        ),
        ("{{ x | tojson(separators=(',', ':')) }}", '{"b":"<ü\'&>","a":[1,null]}'),
        ("{{ x | tojson(true) }}", '{"b": "<\\u00fc\'&>", "a": [1, null]}'),
    ],
)
def test_json_is_written_plain(source: str, expected: str) -> None:
    assert text_of(source, variables={"x": {"b": "<ü'&>", "a": [1, None]}}) == expected


def test_special_tokens_are_defined_when_the_model_has_them() -> None:
    source = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ bos_token is defined }}"
    assert text_of(source) == "<s></s>True"
    none = Template(text=source, other_tokens={"pad_token": "<pad>"})
    assert render(none, asked()).text == "<pad>False"


def test_tools_and_documents_are_always_defined() -> None:
    assert text_of("{{ tools is none }} {{ documents is none }}") == "True True"
    assert text_of("{{ tools[0].function.name }} {{ tools is string }}", tools=(TOOL,)) == "weather False"


@pytest.mark.parametrize(
    "thinking, expected", [(None, "False False"), (True, "True True"), (False, "False False")]
)
def test_thinking_is_switched_under_both_names(*, thinking: bool | None, expected: str) -> None:
    source = "{{ enable_thinking is true }} {{ thinking is true }}"
    assert text_of(source, thinking=thinking) == expected
    assert text_of("{{ thinking is defined }}", thinking=thinking) == str(thinking is not None)


def test_variables_are_stronger_than_everything_else() -> None:
    variables = {"bos_token": "B", "add_generation_prompt": "G", "thinking": "T", "tools": "X"}
    source = "{{ bos_token }}{{ add_generation_prompt }}{{ thinking }}{{ tools }}{{ enable_thinking }}"
    assert text_of(source, thinking=True, tools=(TOOL,), variables=variables) == "BGTXTrue"


def test_null_fields_of_a_message_are_not_there() -> None:
    source = "{{ 'content' in messages[0] }}{{ messages[0].deep.content is none }}"
    assert text_of(source, {"role": "user", "content": None, "deep": {"content": None}}) == "FalseTrue"


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_there_under_its_usual_names(name: str) -> None:
    source = "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}{{ messages[0].reasoning }}"
    expected = "RRR" if name == "reasoning" else "RR"
    assert text_of(source, {"role": "assistant", name: "R"}) == expected
    assert text_of(source, {"role": "assistant", name: None}) == ""


def test_the_date_is_the_given_one_and_its_use_is_reported() -> None:
    source = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y %H:%M') }}{% endif %}"
    assert render(Template(text=source), asked()) == Rendered(text="02 Jan 2026 00:00", uses_date=True)
    compiled = CompiledTemplate(Template(text="{% if messages %}{{ strftime_now('%Y') }}{% endif %}"))
    assert [compiled.render(asked(*some)).uses_date for some in ((USER,), (), (USER,))] == [True, False, True]


@pytest.mark.parametrize(
    "date, message",
    [
        ("today", "got date `today`, expected a day as `YYYY-MM-DD`"),
        ("2026-02-30", "got date `2026-02-30`, expected a day as `YYYY-MM-DD`"),
        ("20260102", "got date `20260102`, expected it written as `2026-01-02`"),
    ],
)
def test_a_date_that_is_none_is_refused(date: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        render(Template(text="x"), RenderRequest(messages=(), frozen_date=date))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text, bos_token, expected",
    [("<s>Hi", "<s>", True), ("Hi<s>", "<s>", False), ("Hi", "", False), ("", "<s>", False)],
)
def test_a_bos_token_at_the_beginning_is_seen(*, text: str, bos_token: str, expected: bool) -> None:
    assert starts_with_bos(text, bos_token) is expected


# --- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, message",
    [
        ("a\n{% if %}", "the chat template cannot be read at line 2: Expected an expression, got 'end of statement block'"),
        ("\n\n{{ x | unheard_of }}", "the chat template cannot be read at line 3: No filter named 'unheard_of'"),
        ("{% break %}", "the chat template cannot be read: 'break' outside loop"),
        ("{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}", "the chat template cannot be read: it nests too deeply"),
        (
            "\n{{ raise_exception('Roles must\\n  alternate.') }}",
            "the chat template refuses the conversation at line 2: Roles must alternate",
        ),
        ("{{ raise_exception(7) }}", "the chat template refuses the conversation at line 1: 7"),
        (
            "{{ raise_exception('x' * 1000) }}",
            f"the chat template refuses the conversation at line 1: {'x' * 300}…",
        ),
        ("a\n{{ x.y }}", "the chat template fails at line 2: UndefinedError: 'x' is undefined"),
        ("{{ 1 + 'a' }}", "the chat template fails at line 1: TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
        (
            "{% macro deep() %}\n{{ deep() }}{% endmacro %}{{ deep() }}",
            "the chat template fails at line 2: it nests too deeply",
        ),
        (
            "{{ [1, 2] | random }}",
            "the chat template draws by chance at line 1, expected the same text each time",
        ),
        ("{{ lipsum() }}", "the chat template draws by chance at line 1, expected the same text each time"),
        (
            "ab{{ '\\ud83d' }}",
            "the rendered prompt holds the lone surrogate `U+D83D` at character 2, expected Unicode text",
        ),
    ],
)  # fmt: skip
def test_each_fault_is_one_message_with_its_line(source: str, message: str) -> None:
    assert fault_of(source) == message


# --- what a hostile template must not reach ---------------------------------------------------------------

UNSAFE = "the chat template fails at line 1: SecurityError: "


@pytest.mark.parametrize(
    "source, message",
    [
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ messages[0].update(a=1) }}", "access to attribute 'update' of 'dict' object is unsafe"),
        ("{{ strftime_now.__self__.x }}", "access to attribute '__self__' of 'method' object is unsafe"),
        (
            "{{ raise_exception.__globals__['json'] }}",
            "access to attribute '__globals__' of 'function' object is unsafe",
        ),
        ("{{ cycler.__init__.__globals__ }}", "access to attribute '__init__' of 'type' object is unsafe"),
        ("{{ '{0.__class__.__mro__}'.format('') }}", "access to attribute '__class__' of 'str' object is unsafe"),
        (
            "{{ '{a.__class__.b}'.format_map({'a': 1}) }}",
            "access to attribute '__class__' of 'int' object is unsafe",
        ),
        ("{{ ''|attr('__class__')|attr('x') }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ namespace(_x=1) }}", "a namespace has no private names: '_x'"),
        ("{% set n = namespace() %}{% set n.__class__ = 1 %}", "a namespace has no private names: '__class__'"),
        ("{% include 'x' %}", "a chat template cannot load another one: 'x'"),
        ("{% include 'x' ignore missing %}", "a chat template cannot load another one: 'x'"),
        ("{% import '/etc/passwd' as x %}", "a chat template cannot load another one: '/etc/passwd'"),
        ("{% from 'x' import y %}", "a chat template cannot load another one: 'x'"),
        ("{% extends 'x' %}", "a chat template cannot load another one: 'x'"),
    ],
)  # fmt: skip
def test_the_sandbox_gives_no_way_out(source: str, message: str) -> None:
    assert fault_of(source, USER) == UNSAFE + message


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__ }}", "{{ '{0.__class__}'.format('') }}", "{{ self.__init__ }}"]
)
def test_a_private_attribute_that_is_only_printed_is_nothing(source: str) -> None:
    assert text_of(source) == ""


def test_a_range_that_is_huge_is_refused() -> None:
    assert fault_of("{{ range(10**9) }}") == (
        "the chat template fails at line 1: OverflowError: "
        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)"
    )


def test_dictionaries_and_namespaces_can_be_made() -> None:
    source = (
        "{{ dict(a=1) }}{{ dict([('b', 2)]) }}{{ dict.fromkeys([3], 4) }}"
        "{% set n = namespace({'x': 1}, self=5) %}{% set n.y = 6 %}{{ n.x }}{{ n.self }}{{ n.y }}"
    )
    assert text_of(source) == "{'a': 1}{'b': 2}{3: 4}156"


@pytest.mark.parametrize("during", ["from_string", "render"])
def test_a_lack_of_memory_is_for_the_process_with_limits_to_tell(
    during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(*_args: object, **_kwargs: object) -> None:
        raise MemoryError

    owner = jinja2.Environment if during == "from_string" else jinja2.Template
    monkeypatch.setattr(owner, during, lack)
    with pytest.raises(MemoryError):
        render(Template(text="x"), asked())


# --- laws -------------------------------------------------------------------------------------------------

BLOCKS = "if endif for endfor set macro endmacro call break generation endgeneration"
WORDS = "in = x . [ ] ( ) | ~ - 0 'a' messages role content tojson trim length namespace dict strftime_now"
PIECES = st.sampled_from(f"{{{{ }}}} {{% %}} {{# #}} {BLOCKS} {WORDS}".split())


@given(st.lists(PIECES | st.text(max_size=5), max_size=30).map(" ".join))
@example("{{ messages | tojson")
@example("{% generation %}")
@example("{{ 'a'.x.y }}")
def test_every_template_gives_a_text_or_an_input_error_and_the_same_twice(source: str) -> None:
    def once() -> str:
        try:
            return render(Template(text=source), asked(USER)).text
        except InputError as error:
            return f"refused: {error}"

    first = once()
    assert first == once()
    if first.startswith("refused: "):
        assert "\n" not in first
        assert len(first) < 500
