"""Rendering of chat templates in a process of its own, with limits of memory and time.

Lives here: ``Renderer`` (this side) and ``serve`` (the child's side, ``python -m qlock.world.render``). Does not
live here: what rendering means (``core.template``) and the handling of child processes (``world.process``).

A chat template is a program that came with a model file. Jinja's sandbox keeps it from files and from the
interpreter, not from ``'a' * 10**9`` or an endless loop. So the child has limits from the kernel, an environment
without anything of the user's, and is thrown away when a template goes over them. One child renders thousands of
prompts; the template is read once.

Both sides speak JSON, one object a line, at most ``_LINE_BYTES`` long:

1. The child says ``{"ready": true}``.
2. It is sent ``{"template": …}`` whenever the template is another one, or ``{"request": …}``.
3. It answers each with ``{"text": …, "uses_date": …, "cpu_s": …}`` (of a template: an empty text; the
   seconds are those of the child since its start), ``{"refused": …}`` with the message of an ``InputError``, or
   ``{"short_of": "memory"}``.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from qlock.core.template import CompiledTemplate, Rendered, RenderRequest, Template
from qlock.core.units import bytes_text
from qlock.errors import AbsentError, InputError
from qlock.world.process import Ended, Flooded, Heard, Limits, LineChild, Silent

_LINE_BYTES = 64_000_000
_START_S = 60.0
_ROOT = Path(__file__).parents[2]


class RenderLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one render may cost. A prompt takes milliseconds; these only stop what would never end."""

    memory_bytes: int = 512_000_000
    """Address space of the child: its interpreter (about 60 MB), template, conversation and prompt."""

    cpu_s: int = 10
    """Processor seconds of one render: they do not depend on how busy the machine is."""

    wall_s: float = 120.0
    """Seconds by the clock, for a child that waits without computing."""


class Renderer:
    """Renders conversations in a child process. Use it as a context manager, or call ``close``.

    The child starts with the first render, and again after one that went over a limit. It belongs to the thread
    that started it (``world.process``).
    """

    def __init__(self, limits: RenderLimits | None = None) -> None:
        self._limits = limits or RenderLimits()
        self._child: LineChild | None = None
        self._sent: Template | None = None
        self.spent_s = 0.0
        """Processor seconds of all that was rendered so far, the starts of children with them."""
        self._child_s = 0.0

    def render(self, template: Template, request: RenderRequest) -> Rendered:
        """The conversation as the template writes it.

        Raises:
            InputError: The template cannot be read, refuses the conversation, breaks, or goes over a limit.
            AbsentError: The child could not be started.
        """
        if self._child is None:
            self._child = self._start()
            self._child_s = 0.0
            self._sent = None
        if self._sent != template:
            self._sent = None
            self._ask({"template": msgspec.to_builtins(template)})
            self._sent = template
        return self._ask({"request": msgspec.to_builtins(request)})

    def close(self) -> None:
        """End the child, if one runs; a later render starts another."""
        if self._child is not None:
            self._child.close(grace_s=0)
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> LineChild:
        # `-P` and a root of its own: the child imports qlock from where this module lies, whatever folder it
        # stands in. Nothing else of the environment matters to a template, so nothing else is there.
        child = LineChild(
            (sys.executable, "-P", "-m", "qlock.world.render"),
            env={"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"},
            cwd=Path("/"),
            limits=Limits(address_space_bytes=self._limits.memory_bytes, file_bytes=0, open_files=64),
        )
        is_ready = False
        try:
            is_ready = child.read_line(_START_S, _LINE_BYTES) == b'{"ready": true}'
        finally:
            if not is_ready:
                how = child.close(grace_s=0)
        if not is_ready:
            raise AbsentError(
                f"the process that renders chat templates did not start: {how}",
                hint=f"run `{sys.executable} -m qlock.world.render` to see what it says",
            )
        _send(child, {"cpu_s": self._limits.cpu_s}, _START_S)
        return child

    def _ask(self, order: Mapping[str, object]) -> Rendered:
        assert self._child is not None
        wall_s = self._limits.wall_s
        heard: Heard | None = None
        try:
            _send(self._child, order, wall_s)
            heard = self._child.read_line(wall_s, _LINE_BYTES)
        finally:
            # Interrupted in between: the answer still to come must not be taken for that of the next order.
            if heard is None:
                self.close()
        match heard:
            case bytes() as line:
                return self._answer(json.loads(line))
            case Silent():
                self.close()
                raise InputError(f"the chat template took longer than {wall_s:g} s")
            case Flooded():
                self.close()
                raise InputError(f"the chat template wrote a prompt of more than {bytes_text(_LINE_BYTES)}")
            case Ended(how=how):
                self.close()
                if how == "signal SIGXCPU":
                    raise InputError(f"the chat template took longer than {self._limits.cpu_s} s")
                raise InputError(f"the chat template broke the process that rendered it: {how}")

    def _answer(self, said: dict[str, object]) -> Rendered:
        match said:
            case {"text": str(text), "uses_date": bool(uses_date), "cpu_s": float(cpu_s)}:
                self.spent_s += cpu_s - self._child_s
                self._child_s = cpu_s
                return Rendered(text=text, uses_date=uses_date)
            case {"refused": str(message)}:
                raise InputError(message)
            case _:
                # After a failed allocation the child's memory is in pieces; a fresh one costs a blink.
                self.close()
                allowed = bytes_text(self._limits.memory_bytes)
                raise InputError(f"the chat template needs more than {allowed}")


def _send(child: LineChild, order: Mapping[str, object], deadline_s: float) -> None:
    line = json.dumps(order).encode()
    if len(line) > _LINE_BYTES:
        raise InputError(
            f"a template or conversation is too long: got {bytes_text(len(line))}, "
            f"expected at most {bytes_text(_LINE_BYTES)}"
        )
    # What went wrong with writing is said again by the reading that follows.
    child.write_line(line, deadline_s)


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """The child's side: answer orders until their end."""
    _write(answers, {"ready": True})
    cpu_s = json.loads(orders.readline(_LINE_BYTES))["cpu_s"]
    compiled: CompiledTemplate | None = None
    while line := orders.readline(_LINE_BYTES + 1):
        _allow_cpu(cpu_s)
        try:
            order = json.loads(line)
            if "template" in order:
                compiled = None  # Two large templates need not be there at the same time.
                compiled = CompiledTemplate(msgspec.convert(order["template"], Template))
                rendered = Rendered(text="", uses_date=False)
            else:
                assert compiled is not None
                rendered = compiled.render(msgspec.convert(order["request"], RenderRequest))
            spent_s = time.process_time()
            _write(answers, {"text": rendered.text, "uses_date": rendered.uses_date, "cpu_s": spent_s})
        except MemoryError:
            _write(answers, {"short_of": "memory"})
        except InputError as error:
            _write(answers, {"refused": error.message})


def _write(answers: BinaryIO, answer: Mapping[str, object]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _allow_cpu(cpu_s: int) -> None:
    """Let the kernel end this process (SIGXCPU) after so many more processor seconds, rounded up.

    The limit counts from the start of the process, so it is moved along before each render. Python cannot catch
    what happens inside one long multiplication; the kernel can.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time()) + cpu_s
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
