"""llama.cpp through the low-level functions of llama-cpp-python: load, read back, decode, tokens. Child process only.

Lives here: every call into the library. Parameters are all written out, none is left to a default that may move.
Does not live here: which rows are decoded when (``lockstep``), and what is made of logits (``sampler``, ``measure``).

NOTE: a mistake here does not raise, it aborts the process; the parent says so with the assertion's own line.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from qlock.core.facts import ReadBack
from qlock.engines.interface import Load, padded_tokens
from qlock.engines.llama_cpp_python import logbook
from qlock.engines.llama_cpp_python.params import context_params, model_params
from qlock.engines.llama_cpp_python.vocab import Vocab
from qlock.errors import EngineError

_LIB_FOLDER = "LLAMA_CPP_LIB_PATH"
"""Where the bindings take their libraries from, when it is set."""
_LOG_LEVEL_INFO = 2
_LOG_LEVEL_ERROR = 4
_LOG_LEVEL_CONT = 5


class Library:
    """The loaded shared libraries and what they log."""

    def __init__(self) -> None:
        self.api = _bindings()
        self.log = logbook.LogBook()
        self._level = _LOG_LEVEL_INFO
        # The library keeps the pointer, so the callback must live as long as it does.
        self._callback = self.api.llama_log_callback(self._hear)
        self.api.llama_log_set(self._callback, ctypes.c_void_p(0))
        self.api.llama_backend_init()
        self._load_backends()

    def label(self) -> str:
        """Version text of the bindings and of llama.cpp."""
        bindings = importlib.metadata.version("llama-cpp-python")
        return f"llama-cpp-python {bindings}, llama.cpp {self.api.llama_version().decode(errors='replace')}"

    def system_info(self) -> str:
        """llama.cpp's line of compiled-in features."""
        text: str = self.api.llama_print_system_info().decode(errors="replace")
        return text.strip()

    def _load_backends(self) -> None:
        """Load the build's backends where they are libraries of their own, which nobody else would look for here.

        Source: ``ggml_backend_load_all_from_path`` in llama.cpp's ggml/src/ggml-backend-reg.cpp.
        """
        folder = os.environ.get(_LIB_FOLDER, "")
        if not folder:
            return
        # The very library that the bindings have loaded: the loader knows it by its file.
        library = ctypes.CDLL(str(Path(folder) / "libllama.so"))
        if library.ggml_backend_reg_count() == 0:
            library.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
            library.ggml_backend_load_all_from_path.restype = None
            library.ggml_backend_load_all_from_path(os.fsencode(folder))

    def _hear(self, level: int, text: bytes, _: object) -> None:
        said = text.decode(errors="replace")
        self._level = self._level if level == _LOG_LEVEL_CONT else level
        self.log.hear(said, is_error=self._level == _LOG_LEVEL_ERROR)
        # Debug lines go to the book alone: there are thousands of them for each model.
        if self._level >= _LOG_LEVEL_INFO:
            sys.stderr.write(said)
            sys.stderr.flush()


class Model:
    """Weights and vocabulary, as they are loaded.

    Raises:
        EngineError: llama.cpp refused.
    """

    def __init__(self, library: Library, load: Load) -> None:
        self._api = library.api
        params, self._kept = model_params(self._api, load.setting)
        paths = [path.encode("utf-8", "surrogateescape") for path in load.weights]
        if len(paths) == 1:
            self.pointer = self._api.llama_model_load_from_file(paths[0], params)
        else:
            self.pointer = self._api.llama_model_load_from_splits(
                (ctypes.c_char_p * len(paths))(*paths), len(paths), params
            )
        if not self.pointer:
            said = library.log.complaint()
            raise EngineError(f"llama.cpp could not load `{load.weights[0]}`" + (f": {said}" if said else ""))
        self.said = library.log.lines()
        """What the library told of it."""

    def close(self) -> None:
        """Free it; safe to call twice."""
        if self.pointer is not None:
            self._api.llama_model_free(self.pointer)
            self.pointer = None


class Native:
    """One model with one context of ``slots`` sequences, each with a KV cache of its own.

    Args:
        library: llama.cpp.
        load: What to load, and how.
        model: Loaded already, for a point with the same one; whoever loaded it closes it, after this.

    Raises:
        EngineError: llama.cpp refused, or what it did cannot be read back.
    """

    def __init__(self, library: Library, load: Load, *, model: Model | None = None) -> None:
        self._api = library.api
        self._log = library.log
        self.load = load
        self.setting = load.setting
        self._log.mark()
        self._before = () if model is None else model.said
        self._is_guest = model is not None
        self.model = Model(library, load) if model is None else model
        self._context: object | None = None
        try:
            self._check_kind()
            self._vocab = Vocab(self._api, self.model.pointer)
            self.vocab_tokens = self._vocab.tokens
            self._make_context()
            self.end_tokens = self._vocab.end_tokens()
            self.read_back = self._read_back()
            self.devices = logbook.devices(self._lines())
            self.memory = logbook.buffers(self._lines())
        except BaseException:
            self.close()
            raise
        self._prefill = _Batch(self._api, self.setting.batch_tokens, one_sequence=True)
        self._rows = _Batch(self._api, self.setting.slots, one_sequence=False)

    def close(self) -> None:
        """Free context and model; safe to call twice."""
        if self._context is not None:
            self._api.llama_free(self._context)
            self._context = None
        if not self._is_guest:
            self.model.close()

    def clear(self, sequence: int) -> None:
        """Forget all that a sequence holds."""
        self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def copy(self, source: int, target: int) -> None:
        """Give an emptied sequence all that another one holds, bit for bit."""
        self.clear(target)
        self._api.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def keep(self, sequence: int, *, most_bytes: int) -> bytes | None:
        """What a sequence holds, bit for bit; ``None`` where it takes more bytes, or cannot be read."""
        size = self._api.llama_state_seq_get_size(self._context, sequence)
        if not 0 < size <= most_bytes:
            return None
        state = (ctypes.c_uint8 * size)()
        got = self._api.llama_state_seq_get_data(self._context, state, size, sequence)
        return bytes(state) if got == size else None

    def put_back(self, sequence: int, kept: bytes) -> bool:
        """Empty a sequence and give it what was kept, also of another one; whether llama.cpp took all of it."""
        self.clear(sequence)
        state = (ctypes.c_uint8 * len(kept)).from_buffer_copy(kept)
        took: int = self._api.llama_state_seq_set_data(self._context, state, len(kept), sequence)
        return took == len(kept)

    def extend(
        self, sequence: int, tokens: Sequence[int], *, at: int, logits_from: int
    ) -> NDArray[np.float32]:
        """Decode tokens of one sequence in one batch; logits of those from index ``logits_from`` on.

        Args:
            sequence: Whose cache holds the ``at`` tokens before these.
            tokens: At most ``batch_tokens``.
            at: Position of the first.
            logits_from: Index within ``tokens``; may lie behind the last.

        Returns:
            Shape ``(rows, vocabulary)``: a view that the next decode overwrites.
        """
        batch = self._prefill
        count = len(tokens)
        batch.sequences[0] = sequence
        batch.tokens[:count] = tokens
        batch.positions[:count] = np.arange(at, at + count)
        batch.wanted[:count] = 0
        batch.wanted[logits_from:count] = 1
        return self._decode(batch, count, rows=max(0, count - logits_from))

    def step(self, tokens: Sequence[int], positions: Sequence[int]) -> NDArray[np.float32]:
        """Decode one token in each of the first ``len(tokens)`` sequences at once.

        Returns:
            Shape ``(rows, vocabulary)``: a view that the next decode overwrites.
        """
        count = len(tokens)
        batch = self._rows
        batch.tokens[:count] = tokens
        batch.positions[:count] = positions
        batch.wanted[:count] = 1
        return self._decode(batch, count, rows=count)

    def use_threads(self, threads: int, batch_threads: int) -> None:
        """Compute with so many threads from now on."""
        self._api.llama_set_n_threads(self._context, threads, batch_threads)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Token ids of a text; raises ``EngineError`` as ``Vocab.tokenize``."""
        return self._vocab.tokenize(text, add_special=add_special, parse_special=parse_special)

    def piece(self, token: int) -> bytes:
        """The bytes of a token, those of special tokens included."""
        return self._vocab.piece(token)

    def _decode(self, batch: _Batch, count: int, *, rows: int) -> NDArray[np.float32]:
        batch.struct.n_tokens = count
        code = self._api.llama_decode(self._context, batch.struct)
        if code != 0:
            raise EngineError(
                f"llama.cpp could not decode `{count}` tokens: got code `{code}`, expected `0`"
                + self._complaint()
            )
        if rows == 0:
            # Nothing is read, so nothing else waits for a device that is still computing.
            self._api.llama_synchronize(self._context)
            return np.empty((0, self.vocab_tokens), dtype=np.float32)
        pointer = self._api.llama_get_logits(self._context)
        if not pointer:
            raise EngineError("llama.cpp gave no logits after a decode")
        return np.ctypeslib.as_array(pointer, shape=(rows, self.vocab_tokens))

    def _lines(self) -> tuple[str, ...]:
        """What the library has said of this model and of this context."""
        return (*self._before, *self._log.lines())

    def _check_kind(self) -> None:
        if self._api.llama_model_has_encoder(self.model.pointer) or not self._api.llama_model_has_decoder(
            self.model.pointer
        ):
            raise EngineError("this model does not continue text by itself: it has an encoder")

    def _make_context(self) -> None:
        trained = self._api.llama_model_n_ctx_train(self.model.pointer)
        if self.setting.context_tokens > trained:
            raise EngineError(
                f"got `context_tokens = {self.setting.context_tokens}`, expected at most the `{trained}` that the"
                " model was trained with"
            )
        if self.setting.batch_tokens < self.setting.slots:
            raise EngineError(
                f"got `batch_tokens = {self.setting.batch_tokens}`, expected at least one for each of"
                f" `{self.setting.slots}` slots"
            )
        self._context = self._api.llama_init_from_model(
            self.model.pointer, context_params(self._api, self.setting)
        )
        if not self._context:
            raise EngineError("llama.cpp could not make a context" + self._complaint())
        self._memory = self._api.llama_get_memory(self._context)
        if not self._memory:
            raise EngineError("this model does not continue text: it keeps no memory of what it has read")

    def _read_back(self) -> ReadBack:
        api, context, lines = self._api, self._context, self._lines()
        cache_type_k, cache_type_v = logbook.cache_types(lines)
        layers, layers_offloaded = logbook.layers(lines)
        memory = logbook.buffers(lines)
        told = self._vocab.told()
        return ReadBack(
            context_tokens=self._context_of_a_slot(),
            slots=api.llama_n_seq_max(context),
            batch_tokens=api.llama_n_batch(context),
            ubatch_tokens=api.llama_n_ubatch(context),
            threads=api.llama_n_threads(context),
            batch_threads=api.llama_n_threads_batch(context),
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
            flash_attention=logbook.flash_attention(lines),
            layers=layers,
            layers_offloaded=layers_offloaded,
            weights_buffer=logbook.of_weights(memory),
            cache_buffer=logbook.of_cache(memory),
            trained_context_tokens=api.llama_model_n_ctx_train(self.model.pointer),
            vocab_tokens=self.vocab_tokens,
            add_bos=told.add_bos,
            add_eos=self._vocab.adds_eos(),
            bos_token=told.bos_token,
            eos_token=self._vocab.eos(),
            bos_text=told.bos_text,
            eos_text=told.eos_text,
            end_tokens=tuple(sorted(self.end_tokens)),
            expert_count=self._expert_count(),
        )

    def _context_of_a_slot(self) -> int:
        """What is asked for, once the engine has it with nothing but its own rounding on top."""
        asked = self.setting.context_tokens
        got: int = self._api.llama_n_ctx_seq(self._context)
        padded = padded_tokens(asked)
        if got != padded:
            raise EngineError(
                f"got a context of `{got}` tokens for each slot, expected `{padded}` for `{asked}`"
            )
        return asked

    def _expert_count(self) -> int:
        architecture = self._metadata("general.architecture")
        text = self._metadata(f"{architecture}.expert_count")
        if text and not text.isdecimal():
            raise EngineError(f"cannot verify `expert_count`: got `{text}`, expected a number")
        return int(text or "0")

    def _metadata(self, key: str) -> str:
        """A value of the GGUF as text; empty when it has no such key."""
        buffer = ctypes.create_string_buffer(256)
        count = self._api.llama_model_meta_val_str(self.model.pointer, key.encode(), buffer, len(buffer))
        return buffer.value.decode(errors="replace") if count >= 0 else ""

    def _complaint(self) -> str:
        said = self._log.complaint()
        return f": {said}" if said else ""


class _Batch:
    """A ``llama_batch`` over arrays of our own; with ``one_sequence`` every token belongs to ``sequences[0]``."""

    def __init__(self, api: ModuleType, room: int, *, one_sequence: bool) -> None:
        self.tokens = np.zeros(room, dtype=np.int32)
        self.positions = np.zeros(room, dtype=np.int32)
        self.wanted = np.zeros(room, dtype=np.int8)
        self.sequences = np.arange(1 if one_sequence else room, dtype=np.int32)
        self._counts = np.ones(room, dtype=np.int32)
        stride = 0 if one_sequence else self.sequences.itemsize
        self._pointers = np.array(
            [self.sequences.ctypes.data + index * stride for index in range(room)], dtype=np.uintp
        )
        number = ctypes.POINTER(ctypes.c_int32)
        self.struct = api.llama_batch(
            n_tokens=0,
            token=self.tokens.ctypes.data_as(number),
            embd=None,
            pos=self.positions.ctypes.data_as(number),
            n_seq_id=self._counts.ctypes.data_as(number),
            seq_id=self._pointers.ctypes.data_as(ctypes.POINTER(number)),
            logits=self.wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )


def _bindings() -> ModuleType:
    """The module of low-level functions, without the package around it.

    The package's own ``__init__`` brings the high-level classes, a chat server's parts and a second copy of
    libggml; none of it belongs into a process whose mapped files are pinned.

    Raises:
        EngineError: llama-cpp-python is not installed, or its library does not load.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.submodule_search_locations is None:
        raise EngineError("llama-cpp-python is not installed", hint="install qlock with the extra `embedded`")
    package = ModuleType("llama_cpp")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["llama_cpp"] = package
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (OSError, RuntimeError, AttributeError) as error:
        raise EngineError(f"llama.cpp's library does not load: {error}") from error
