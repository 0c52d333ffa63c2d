"""Reading calls: Python style, JSON, tags; with Python's own reader of literals as the oracle."""

from __future__ import annotations

import ast
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qlock.core.exchange import Unparsable
from qlock.suites.tasks.calls import Call, read_calls, seems_to_call


def call(name: str, **arguments: object) -> Call:
    return Call(name=name, arguments=arguments)


@pytest.mark.parametrize(
    "text, calls",
    [
        ("[]", ()),
        ("[ ]", ()),
        ("[f()]", (call("f"),)),
        ("f(a=1)", (call("f", a=1),)),
        ("f(a=1), g(b=2)", (call("f", a=1), call("g", b=2))),
        ("[f(a=1, b='x'),\n g.h(c=[1, 2.5, -3])]", (call("f", a=1, b="x"), call("g.h", c=[1, 2.5, -3]))),
        ("[f(a=1,),]", (call("f", a=1),)),
        ("```python\n[f(a=1)]\n```", (call("f", a=1),)),
        ("Sure:\n```\nf(a=1)\n```", (call("f", a=1),)),
        ("f(a='<tool_call>')", (call("f", a="<tool_call>"),)),
        ("f(a='```x```')", (call("f", a="```x```"),)),
        ("`[f(a=1)]`", (call("f", a=1),)),
        ("f(a=True, b=None, c=false, d=null)", (call("f", a=True, b=None, c=False, d=None),)),
        ("f(a={'k': (1, 2), \"l\": (3)})", (call("f", a={"k": [1, 2], "l": 3}),)),
        ("f(a=(1,), b=())", (call("f", a=[1], b=[]),)),
        ("f(a='it\\'s', b=\"\"\"two\nlines\"\"\")", (call("f", a="it's", b="two\nlines"),)),
        ("get-weather(city='Bern')", (call("get-weather", city="Bern"),)),
        ('{"name": "f", "arguments": {"a": 1}}', (call("f", a=1),)),
        ('{"name": "f", "parameters": {"a": 1}}', (call("f", a=1),)),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', (call("f", a=1),)),
        ('{"name": "f"}', (call("f"),)),
        ('[{"name": "f", "arguments": {}, "id": "1"}, {"name": "g"}]', (call("f"), call("g"))),
        ('```json\n{"name": "f"}\n```', (call("f"),)),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', (call("f", a=1),)),
        ('ok <tool_call>{"name": "f"}</tool_call> and <tool_call>g(a=1)', (call("f"), call("g", a=1))),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, calls: tuple[Call, ...]) -> None:
    assert read_calls(text) == calls


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no call: got the end at character 1"),
        ("I cannot help", "no call: got `cannot help` at character 3"),
        ("f(1)", "no call: got `1)` at character 3"),
        ("f(a=1", "no call: got the end at character 6"),
        ("[f(a=1)", "no call: got the end at character 8"),
        ("[f(a=1)] Done", "no call: got `Done` at character 10"),
        ("f(a=1) f(a=2)", "no call: got `f(a=2)` at character 8"),
        ("f(a=1, a=2)", "the argument `a` occurs twice"),
        ("f(a={'x': 1, 'x': 2})", "the key `x` occurs twice"),
        ("f(a={1: 2})", "no call: got `1: 2})` at character 6"),
        ("f(a=1+1)", "no call: got `+1)` at character 6"),
        ("f(a=g())", "no call: got `g())` at character 5"),
        ("f(a=__import__('os'))", "no call: got `__import__('os'))` at character 5"),
        ("f(a=--1)", "no call: got `-1)` at character 6"),
        ("f(a=f'x')", "no call: got `f'x')` at character 5"),
        ("f(a='x' 'y')", "no call: got `'y')` at character 9"),
        ("f(a='x\ny')", "a text does not end"),
        ("f(a='x", "a text does not end"),
        (r"f(a='\N{DIGIT ONE}')", "got an escape that is not read here"),
        (r"f(a='\x4')", "got the escape `4'`, expected 2 hex digits"),
        (r"f(a='\U00110000')", "got the escape `00110000`, expected 8 hex digits"),
        ("f(a=007)", "got the number `007`, expected one that Python reads"),
        ("f(a=1__0)", "got the number `1__0`, expected one that Python reads"),
        ("f(a=0x10)", "no call: got `x10)` at character 6"),
        ("f(a=1e999)", "got the number `1e999`, expected one that fits a float"),
        ("f(a=3j)", "no call: got `j)` at character 6"),
        ("f(a=" + "[" * 70, "arguments are nested deeper than 64"),
        ("f(a=" + "(" * 99_000, "arguments are nested deeper than 64"),
        ("f(), " * 65 + "f()", "got 66 calls, expected at most 64"),
        ("x" * 100_001, "got a reply of 100001 characters, expected at most 100000"),
        ('{"function": "f"}', "got JSON without a `name`, expected a call"),
        ("[{}, 1]", "got JSON without a `name`, expected a call"),
        ('{"name": "f", "arguments": [1]}', "the arguments of `f` are no table"),
        ('{"name": "f", "arguments": "a"}', "the arguments of `f` are no table"),
        ('{"name": "f", "name": "g"}', "the key `name` occurs twice"),
        ("<tool_call></tool_call>", "no call: got the end at character 1"),
    ],
)  # fmt: skip
def test_what_is_no_call(text: str, why: str) -> None:
    assert read_calls(text) == Unparsable(why=why)


@pytest.mark.parametrize(
    "text, seems",
    [
        ("[f(a=", True),
        ("f(", True),
        ('{"name": "f", "arg', True),
        ('[{"name": "f", "arg', True),
        ("<tool_call>", True),
        ("There is nothing to call", False),
        ("", False),
        ("[1, 2]", False),
        ("sin (x) is odd", False),
    ],
)
def test_what_starts_like_a_call(text: str, seems: bool) -> None:  # noqa: FBT001
    assert seems_to_call(text) is seems


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
names = st.sampled_from(["f", "get_weather", "math.sqrt"])
keywords = st.sampled_from(["a", "b_2", "größe"])
calls = st.builds(Call, name=names, arguments=st.dictionaries(keywords, literals, max_size=3))


@given(st.lists(calls, max_size=4))
def test_calls_written_as_python_writes_them_are_read(made: list[Call]) -> None:
    text = ", ".join(
        f"{one.name}({', '.join(f'{key}={value!r}' for key, value in one.arguments.items())})" for one in made
    )
    assert read_calls(f"[{text}]") == tuple(made)


@given(st.lists(calls, min_size=1, max_size=4))
def test_calls_written_as_json_are_read(made: list[Call]) -> None:
    tables = [{"name": one.name, "arguments": one.arguments} for one in made]
    assert read_calls(json.dumps(tables)) == tuple(made)
    tagged = "".join(
        f"<tool_call>{json.dumps(table).replace('<', chr(92) + 'u003c')}</tool_call>" for table in tables
    )
    assert read_calls(tagged) == tuple(made)


@given(st.text(alphabet="'\"\\\nnx4u0aN{}[]()1.,:eE-+_ rbfTrueNone"))
@example(r"'\400'")
@example("'\\\n'")
@example("1_0.5e-3")
@example("(1)")
@example("0,")
@example("[true]")
def test_a_literal_that_is_read_means_what_it_means_in_python(text: str) -> None:
    read = read_calls(f"f(a={text})")
    if isinstance(read, Unparsable) or len(read) != 1 or list(read[0].arguments) != ["a"]:
        return
    try:
        written = ast.parse(f"f(a={text})", mode="eval").body
        assert isinstance(written, ast.Call)
        expected = ast.literal_eval(written.keywords[0].value)
    except (SyntaxError, DeprecationWarning):  # an unknown escape is a warning, and warnings are errors here
        assert "\\" in text
        return
    except ValueError:
        assert {"true", "false", "null"} & set(re.findall("[a-z]+", text))
        return
    assert json.dumps(read[0].arguments["a"]) == json.dumps(expected)


@given(st.text() | st.text(alphabet="f(a='1\"\\)[]{},:- <tool_call>"))
def test_any_text_is_calls_or_none(text: str) -> None:
    assert isinstance(read_calls(text), tuple | Unparsable)
    assert seems_to_call(text) in {True, False}


@pytest.mark.parametrize(
    "piece", ["-", "f(", "f(a=", "'", "\\", '"""', "[f(),", "<tool_call>", "((", " ", "a."]
)
def test_long_hostile_text_ends(piece: str) -> None:
    for text in (piece * (99_000 // len(piece)), f"f(a={piece * (90_000 // len(piece))}", piece * 1_000_000):
        assert isinstance(read_calls(text), Unparsable)
        assert seems_to_call(text) in {True, False}
