"""Questions to a server that need no computing: what a text is in tokens, and tokens in text.

Does not live here: continuing prompts (``completion``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from qlock.core.escape import for_message
from qlock.core.facts import ReadBack
from qlock.engines.llama_cpp.asked import Room
from qlock.engines.llama_cpp.server import Answered, Lost, Server
from qlock.errors import EngineError

_TRIAL = "a b"

Shape = TypeVar("Shape")


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class _Text(msgspec.Struct, frozen=True):
    content: str


def tokens_of(
    server: Server, text: str, *, add_special: bool, parse_special: bool, deadline_s: float
) -> tuple[int, ...]:
    """Token ids of a text.

    Raises:
        EngineError: The text is not Unicode, or the server gives no token ids.
    """
    try:
        body = msgspec.json.encode(
            {"content": text, "add_special": add_special, "parse_special": parse_special}
        )
    except UnicodeEncodeError as error:
        raise EngineError(f"cannot tokenize a text that is not Unicode: {error.reason}") from error
    return _asked(server, "/tokenize", body, _Tokens, deadline_s).tokens


def text_of(server: Server, tokens: Sequence[int], *, deadline_s: float) -> str:
    """The text of tokens, special ones written out.

    Raises:
        EngineError: The server gives no text.
    """
    body = msgspec.json.encode({"tokens": tokens})
    return _asked(server, "/detokenize", body, _Text, deadline_s).content


def added_of(server: Server, *, bos_token: int, eos_token: int, deadline_s: float) -> tuple[bool, bool]:
    """Whether BOS and EOS are put around a text, seen from what a text becomes with and without them.

    Raises:
        EngineError: It cannot be seen.
    """
    plain, whole = (
        tokens_of(server, _TRIAL, add_special=special, parse_special=False, deadline_s=deadline_s)
        for special in (False, True)
    )
    places = [place for place in range(len(whole)) if whole[place : place + len(plain)] == plain]
    if not plain or not places:
        raise EngineError(
            "cannot verify `add_bos`: a text becomes other tokens with and without special ones"
        )
    return bos_token in whole[: places[0]], eos_token in whole[places[0] + len(plain) :]


def room_of(server: Server, read_back: ReadBack, *, deadline_s: float) -> Room:
    """What an answer of this server may be made of.

    Raises:
        EngineError: The server gives no text of an end token.
    """
    return Room(
        context_tokens=read_back.context_tokens,
        vocab_tokens=read_back.vocab_tokens,
        end_tokens=frozenset(read_back.end_tokens),
        end_texts={token: text_of(server, [token], deadline_s=deadline_s) for token in read_back.end_tokens},
        alias=server.alias,
    )


def _asked(server: Server, path: str, body: bytes, shape: type[Shape], deadline_s: float) -> Shape:
    match server.ask(path, body, deadline_s=deadline_s):
        case Answered(status=200, data=data):
            try:
                return msgspec.json.decode(data, type=shape)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise EngineError(f"the engine answered nonsense to `{path}`: {error}") from error
        case Answered(status=status, data=data):
            said = for_message(data[:200].decode(errors="replace"))
            raise EngineError(
                f"the engine answered nonsense to `{path}`: got HTTP status `{status}` and `{said}`"
            )
        case Lost(why=why):
            raise server.no_answer(why)
