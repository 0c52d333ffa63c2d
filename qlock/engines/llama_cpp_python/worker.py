"""The child process of the embedded engine: orders come in on stdin, words go out on stdout, the log to stderr.

Run as ``python -m qlock.engines.llama_cpp_python.worker``. It ends when its input does. Orders are read by a thread
of their own, so that work can be queued while a decode runs; everything else happens on the main thread.

Does not live here: starting it, and what its death means (``llama_cpp_python``).
"""

from __future__ import annotations

import faulthandler
import os
import queue
import sys
import threading
import time
from typing import BinaryIO

from qlock.engines.interface import Contrast, Generate, Keep, KeptFile, Load, Measure
from qlock.engines.llama_cpp_python import wire
from qlock.engines.llama_cpp_python.kept import KeptFileError, Parts
from qlock.engines.llama_cpp_python.lockstep import Lockstep
from qlock.engines.llama_cpp_python.native import Library, Native
from qlock.engines.llama_cpp_python.params import same_model
from qlock.engines.llama_cpp_python.probe import probe
from qlock.engines.llama_cpp_python.vocab import VocabOnly
from qlock.errors import EngineError

_ALIVE_S = 0.5
"""At most so often a child says that it is alive."""

_PIECE_BYTES = 1 << 16


class Worker:
    """One engine, with at most one model loaded."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._said_s = time.monotonic()
        self._library = Library()
        self._native: Native | None = None
        self._lockstep: Lockstep | None = None
        self._reference: Native | Parts | None = None
        """What was opened to hold the model against; none where that is the model itself."""
        self._words: VocabOnly | None = None
        self.say(wire.Hello(label=self._library.label(), system_info=self._library.system_info()))

    def say(self, word: wire.Word) -> None:
        """Send a word."""
        self._out.write(wire.encode(word) + b"\n")
        self._out.flush()
        self._said_s = time.monotonic()

    def alive(self) -> None:
        """Say so, unless something was said a moment ago."""
        if time.monotonic() - self._said_s >= _ALIVE_S:
            self.say(wire.Alive())

    def serve(self, inbox: queue.SimpleQueue[bytes | None]) -> None:
        """Carry out orders until there are no more."""
        while True:
            is_busy = self._lockstep is not None and self._lockstep.is_busy
            if not is_busy or not inbox.empty():
                line = inbox.get()
                if line is None:
                    return
                self._carry_out(wire.order_from(line))
            elif self._lockstep is not None:
                for done in self._lockstep.advance():
                    self.say(done)

    def _carry_out(self, order: wire.Order) -> None:
        try:
            match order:
                case wire.LoadOrder(load=load):
                    self._unload()
                    self._native = native = Native(self._library, load)
                    self._lockstep = Lockstep(native, self.alive)
                    self.say(
                        wire.Loaded(read_back=native.read_back, devices=native.devices, memory=native.memory)
                    )
                case wire.VocabularyOrder(header=header):
                    self._unload()
                    self._words = VocabOnly(self._library.api, self._library.log, header)
                    self.say(self._words.vocab.told())
                case wire.TokenizeOrder():
                    vocab = self._loaded()[0] if self._words is None else self._words.vocab
                    tokens = vocab.tokenize(
                        order.text, add_special=order.add_special, parse_special=order.parse_special
                    )
                    self.say(wire.Tokens(tokens=tokens))
                case wire.ProbeOrder(prompts=prompts, steps=steps):
                    rows = probe(self._loaded()[0], prompts, steps=steps, alive=self.alive)
                    self.say(wire.Probed(rows=rows))
                case wire.ReferOrder(load=load):
                    self.say(self._refer(load))
                case wire.ReferFileOrder(file=file):
                    self._refer_file(file)
                    self.say(wire.Referred(read_back=None, devices=()))
                case Generate() | Measure() | Contrast() | Keep():
                    self._loaded()[1].submit(order)
        except EngineError as error:
            self.say(wire.Refused(why=error.message))

    def _refer(self, load: Load) -> wire.Referred:
        """Load a second point beside the first: no model twice, and the very same point not at all."""
        native, lockstep = self._loaded()
        self._forget_reference()
        if load == native.load:
            reference = native
        else:
            shared = native.model if same_model(load, native.load) else None
            reference = self._reference = Native(self._library, load, model=shared)
        if reference.vocab_tokens != native.vocab_tokens:
            self._forget_reference()
            raise EngineError(
                f"the vocabularies differ in size: got `{reference.vocab_tokens}` tokens of the reference,"
                f" expected `{native.vocab_tokens}`"
            )
        lockstep.refer(reference)
        return wire.Referred(read_back=reference.read_back, devices=reference.devices)

    def _refer_file(self, file: KeptFile) -> None:
        native, lockstep = self._loaded()
        self._forget_reference()
        try:
            parts = self._reference = Parts(file.path)
        except KeptFileError as error:
            raise EngineError(str(error)) from error
        if parts.layout.vocab_tokens != native.vocab_tokens:
            self._forget_reference()
            raise EngineError(
                f"the vocabularies differ in size: got `{parts.layout.vocab_tokens}` tokens in the kept file,"
                f" expected `{native.vocab_tokens}`"
            )
        lockstep.refer(parts)

    def _forget_reference(self) -> None:
        if self._lockstep is not None:
            self._lockstep.refer(None)
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def _loaded(self) -> tuple[Native, Lockstep]:
        if self._native is None or self._lockstep is None:
            raise EngineError("no model is loaded")
        return self._native, self._lockstep

    def _unload(self) -> None:
        self._forget_reference()
        if self._native is not None:
            self._native.close()
        if self._words is not None:
            self._words.close()
        self._native = self._lockstep = self._words = None


def _read_orders(source: int, inbox: queue.SimpleQueue[bytes | None]) -> None:
    """Pass whole lines on until there are no more; a torn last one is dropped.

    NOTE: ``sys.stdin`` would not do: an interpreter that ends while a thread waits in it aborts.
    """
    begun: list[bytes] = []
    while piece := os.read(source, _PIECE_BYTES):
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            inbox.put(b"".join(begun))
            begun = [other]
    inbox.put(None)


def main() -> None:
    """Serve until the input ends."""
    faulthandler.enable()
    # Libraries that print must not be able to print between the words.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    try:
        worker = Worker(out)
    except EngineError as error:
        out.write(wire.encode(wire.Refused(why=error.message)) + b"\n")
        out.flush()
        sys.exit(1)
    threading.Thread(target=_read_orders, args=(0, inbox), daemon=True).start()
    try:
        worker.serve(inbox)
    except EngineError as error:
        # In the middle of a decode: what the caches hold is unknown, so nothing may follow.
        worker.say(wire.Refused(why=error.message))
        sys.exit(1)


if __name__ == "__main__":
    main()
