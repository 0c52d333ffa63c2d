"""The vocabulary of a loaded model, or of a GGUF that holds nothing else. Child process only.

Does not live here: loading a whole model and what needs its weights (``native``).
"""

from __future__ import annotations

import ctypes
from types import ModuleType

import numpy as np

from qlock.engines.interface import Vocabulary
from qlock.engines.llama_cpp_python.logbook import LogBook
from qlock.engines.llama_cpp_python.params import vocabulary_params
from qlock.errors import EngineError


class Vocab:
    """Tokens of one ``llama_model``, which must outlive this.

    Args:
        api: The library.
        model: The ``llama_model``.
    """

    def __init__(self, api: ModuleType, model: object) -> None:
        self._api = api
        self._vocab: object = api.llama_model_get_vocab(model)
        self.tokens: int = api.llama_vocab_n_tokens(self._vocab)
        """How many there are."""
        self._pieces: dict[int, bytes] = {}

    def told(self) -> Vocabulary:
        """What the library says of it."""
        bos, eos = self.bos(), self.eos()
        return Vocabulary(
            add_bos=bool(self._api.llama_vocab_get_add_bos(self._vocab)),
            bos_token=bos,
            bos_text=self.text(bos),
            eos_text=self.text(eos),
            vocab_tokens=self.tokens,
        )

    def bos(self) -> int:
        """The token that begins a text; −1 where there is none."""
        found: int = self._api.llama_vocab_bos(self._vocab)
        return found

    def eos(self) -> int:
        """The token that ends a text; −1 where there is none."""
        found: int = self._api.llama_vocab_eos(self._vocab)
        return found

    def adds_eos(self) -> bool:
        """Whether EOS is put behind a text."""
        return bool(self._api.llama_vocab_get_add_eos(self._vocab))

    def end_tokens(self) -> frozenset[int]:
        """Every token that ends generation."""
        return frozenset(
            token for token in range(self.tokens) if self._api.llama_vocab_is_eog(self._vocab, token)
        )

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Token ids of a text.

        Raises:
            EngineError: The text is too long for the library's 32-bit lengths.
        """
        data = text.encode("utf-8", "surrogatepass")
        room = len(data) + 16
        if room >= 1 << 31:
            raise EngineError(f"a text of `{len(data)}` bytes is too long to tokenize")
        ids = np.empty(room, dtype=np.int32)
        pointer = ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        count = self._api.llama_tokenize(
            self._vocab, data, len(data), pointer, room, add_special, parse_special
        )
        if count < 0:
            raise EngineError(f"llama.cpp cannot tokenize a text of `{len(data)}` bytes: got `{count}`")
        return tuple(ids[:count].tolist())

    def text(self, token: int) -> str:
        """A token as text; empty for −1."""
        return self.piece(token).decode(errors="replace") if token >= 0 else ""

    def piece(self, token: int) -> bytes:
        """The bytes of a token, those of special tokens included."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._piece(token)
        return known

    def _piece(self, token: int) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count: int = self._api.llama_token_to_piece(self._vocab, token, buffer, room, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            room = -count


class VocabOnly:
    """A vocabulary loaded without weights.

    Args:
        api: The library.
        log: What it logs.
        header: Path of a GGUF without tensors.

    Raises:
        EngineError: llama.cpp does not load it.
    """

    def __init__(self, api: ModuleType, log: LogBook, header: str) -> None:
        self._api = api
        log.mark()
        params, self._kept = vocabulary_params(api)
        self._model: object | None = api.llama_model_load_from_file(
            header.encode("utf-8", "surrogateescape"), params
        )
        if not self._model:
            said = log.complaint()
            raise EngineError("llama.cpp could not load the vocabulary" + (f": {said}" if said else ""))
        self.vocab = Vocab(api, self._model)

    def close(self) -> None:
        """Free it; safe to call twice."""
        if self._model is not None:
            self._api.llama_model_free(self._model)
            self._model = None
