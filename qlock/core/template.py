"""Chat templates: a conversation and a model's own Jinja template become the text that the model is sent.

Lives here: an environment that renders to the same bytes as ``transformers`` does (its
``utils/chat_template_utils.py``, version 5.24), with a date that is given instead of read from a clock. Does not
live here: limits of memory and time. A template comes with a model file from a stranger, and ``'a' * 10**9``
passes Jinja's sandbox; so every render of one that is not our own goes through ``world.render``, which does this
in a process with limits. Turning the text into tokens is the engine's.

What is the same as there, each point having changed somebody's prompt once:

1. Blocks swallow the newline behind them and the blanks before them (``trim_blocks``, ``lstrip_blocks``).
2. ``{% break %}``, ``{% continue %}`` and ``{% generation %}`` exist.
3. ``tojson`` writes plain JSON: nothing is escaped for HTML, letters stay letters, the order of keys is kept.
4. Fields of a message that are null are taken out, and reasoning is given under each name it is known by.
5. ``tools`` and ``documents`` are always defined; without tools ``tools`` is none.
6. The sandbox refuses private attributes and changes to what was passed in; ``dict`` and ``namespace`` are
   replaced by ones that give no way out.

What differs, on purpose: the date; chance (the ``random`` filter, ``lipsum``) is refused, as a prompt must be the
same on each run; and whatever goes wrong is an ``InputError``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from qlock.core.base import Base
from qlock.errors import InputError

_MESSAGE_CHARS = 300
_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


class Template(Base, frozen=True, kw_only=True):
    """A chat template and the special tokens that it may print."""

    text: str
    """The Jinja source, as it stands in the model file."""
    bos_token: str = ""
    """Text of the token that begins a sequence; empty when the model has none (then it is undefined)."""
    eos_token: str = ""
    """Text of the token that ends a turn or sequence; empty when the model has none."""
    other_tokens: dict[str, str] = msgspec.field(default_factory=dict)
    """Further special tokens by the name templates know them by: ``pad_token``, ``unk_token`` …"""


class RenderRequest(Base, frozen=True, kw_only=True):
    """One conversation and how to render it."""

    messages: tuple[dict[str, object], ...]
    """Turns as JSON objects, ``role`` and ``content`` at least; also ``tool_calls``, ``reasoning_content`` …"""
    tools: tuple[dict[str, object], ...] = ()
    """JSON-schema descriptions of functions; none when empty."""
    add_generation_prompt: bool = True
    """Whether to end with the header of the assistant's next turn."""
    thinking: bool | None = None
    """On or off, given to the template as ``enable_thinking`` and as ``thinking``; ``None`` gives neither."""
    variables: dict[str, object] = msgspec.field(default_factory=dict)
    """Whatever else a template reads (``reasoning_effort`` …); stronger than the fields above."""
    frozen_date: str
    """``YYYY-MM-DD``: what ``strftime_now`` believes the day to be, at midnight."""


class Rendered(Base, frozen=True, kw_only=True):
    """A prompt as text, to be tokenized with special tokens read and none added."""

    text: str
    uses_date: bool
    """Whether the template asked for the date; such a prompt is another one tomorrow, wherever it is not frozen."""


class CompiledTemplate:
    """A template read once, to render many conversations.

    Raises:
        InputError: The template is no Jinja that this environment knows.
        MemoryError: Reading it (constants are computed) took more than this process may have.
    """

    def __init__(self, template: Template) -> None:
        self._tokens = {
            name: token
            for name, token in (("bos_token", template.bos_token), ("eos_token", template.eos_token))
            if token
        } | template.other_tokens
        try:
            self._compiled = _environment().from_string(template.text)
        except MemoryError:
            raise
        except jinja2.TemplateSyntaxError as error:
            raise InputError(
                f"the chat template cannot be read at line {error.lineno}: {_clean(error.message or '')}"
            ) from error
        except Exception as error:
            # Deep nesting, a `break` outside a loop: each comes as a class of its own.
            raise InputError(f"the chat template cannot be read: {_told(error)}") from error

    def render(self, request: RenderRequest) -> Rendered:
        """The conversation as the template writes it.

        Raises:
            InputError: The template refuses the conversation, breaks, or writes what is no Unicode text; or the
                date is none.
            MemoryError: It took more than this process may have.
        """
        date = _FrozenDate(request.frozen_date)
        try:
            text = self._compiled.render(self._variables(request, date))
        except MemoryError:
            raise
        except Exception as error:
            # A template is a program: whatever Python can raise, it can.
            raise _fault(error) from error
        _check_unicode(text)
        return Rendered(text=text, uses_date=date.was_read)

    def _variables(self, request: RenderRequest, date: _FrozenDate) -> dict[str, object]:
        switches = (
            {}
            if request.thinking is None
            else dict.fromkeys(("enable_thinking", "thinking"), request.thinking)
        )
        # Through JSON and back: the template sees fresh, plain values, and lists where the structs hold tuples.
        plain = json.loads(json.dumps({"tools": request.tools or None, "variables": request.variables}))
        messages = json.loads(json.dumps(request.messages))
        return {
            "strftime_now": date.strftime_now,
            "messages": [_with_reasoning(_without_null(message)) for message in messages],
            "tools": plain["tools"],
            "documents": None,
            "add_generation_prompt": request.add_generation_prompt,
            **self._tokens,
            **switches,
            **plain["variables"],
        }


def starts_with_bos(text: str, bos_token: str) -> bool:
    """Whether the prompt already begins with the BOS token, so that adding one would double it."""
    return bool(bos_token) and text.startswith(bos_token)


class _RefusedError(jinja2.TemplateError):
    """The template called ``raise_exception``."""


class _ChanceError(jinja2.TemplateError):
    """The template asked for something random."""


class _FrozenDate:
    """Midnight of a given day, which notes whether it was read."""

    def __init__(self, iso_date: str) -> None:
        try:
            day = dt.date.fromisoformat(iso_date)
        except ValueError as error:
            raise InputError(f"got date `{iso_date}`, expected a day as `YYYY-MM-DD`") from error
        if day.isoformat() != iso_date:
            raise InputError(f"got date `{iso_date}`, expected it written as `{day.isoformat()}`")
        self._midnight = dt.datetime.combine(day, dt.time())
        self.was_read = False

    def strftime_now(self, form: str) -> str:
        self.was_read = True
        return self._midnight.strftime(form)


class _Generation(Extension):
    """``{% generation %}``: marks what the model wrote; for a prompt, its body alone counts.

    The body becomes a call block, as in transformers, so that variables set inside stay inside.
    """

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_body"), [], [], body)
        block.set_lineno(line)
        return block

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """``dict`` for templates: makes dictionaries and has no attributes worth reaching for."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """``namespace`` for templates, without private names: they lead into the interpreter."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # No named argument, as `namespace(self=1)` must work.
        self, given = args[0], args[1:]
        assert isinstance(self, _Namespace)
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _check_public(name)
        super().__setitem__(name, value)


class _NoOthers(jinja2.BaseLoader):
    """Finds no other template: a model file holds one, and files are not a template's to read."""

    def get_source(self, environment: jinja2.Environment, template: str) -> NoReturn:  # noqa: ARG002 - Jinja's
        raise jinja2.exceptions.SecurityError(f"a chat template cannot load another one: {template!r}")


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
        loader=_NoOthers(),
    )
    made.filters["tojson"] = _tojson
    made.filters["random"] = _refuse_chance
    made.globals["lipsum"] = _refuse_chance
    made.globals["raise_exception"] = _raise_exception
    made.globals["dict"] = _Dict()
    made.globals["namespace"] = _Namespace
    return made


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may pass each by position
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - the same
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> NoReturn:
    raise _RefusedError(str(message))


def _refuse_chance(*_args: object, **_kwargs: object) -> NoReturn:
    raise _ChanceError("it draws by chance")


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no private names: {name!r}")


def _without_null(message: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in message.items() if value is not None}


def _with_reasoning(message: dict[str, object]) -> dict[str, object]:
    """The message with its reasoning also under ``reasoning_content`` (the usual name) and ``thinking``."""
    for name in _REASONING_NAMES:
        if name in message:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the rendered prompt holds the lone surrogate `U+{ord(text[error.start]):04X}` "
            f"at character {error.start}, expected Unicode text"
        ) from error


def _fault(error: Exception) -> InputError:
    """What a template raised, in one message with the line of the template that raised it."""
    line = _template_line(error.__traceback__)
    place = "" if line is None else f" at line {line}"
    match error:
        case _RefusedError():
            return InputError(f"the chat template refuses the conversation{place}: {_clean(str(error))}")
        case _ChanceError():
            return InputError(f"the chat template draws by chance{place}, expected the same text each time")
        case _:
            return InputError(f"the chat template fails{place}: {_told(error)}")


def _template_line(trace: TracebackType | None) -> int | None:
    """The innermost line of the template; Jinja rewrites the traceback so that it has such frames."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _told(error: Exception) -> str:
    """The error's class and its text, which a template can make as long as it likes."""
    match error:
        case RecursionError():
            return "it nests too deeply"
        case SyntaxError():  # Its line counts in the program that Jinja made of the template.
            return _clean(error.msg)
        case _:
            return f"{type(error).__name__}: {_clean(str(error))}"


def _clean(message: str) -> str:
    """One line of bounded length without a full stop."""
    line = " ".join(message[: 4 * _MESSAGE_CHARS].split()).removesuffix(".")
    return line if len(line) <= _MESSAGE_CHARS else f"{line[:_MESSAGE_CHARS]}…"
