"""The libraries that an engine mapped in a stretch of running, and whether they are still as they were (rule 8).

Does not live here: the models' files (``flows.look``), and what follows from a finding (``flows.run``).
"""

from __future__ import annotations

from qlock.core import facts
from qlock.core.verify import Finding
from qlock.engines.interface import Engine
from qlock.flows.loaded import LoadedFile, engine_libraries, is_untouched, touched
from qlock.flows.proving import see_engine
from qlock.flows.segments import EngineEnd
from qlock.world.interface import World


class Libraries:
    """The engine's libraries in one stretch of running: what they were when first seen, and whether they still are.

    Args:
        world: The effects.
        pin: The engine that is locked.
    """

    def __init__(self, world: World, pin: facts.Engine) -> None:
        self._world = world
        self._pin = pin
        self._first: dict[str, LoadedFile] = {}
        self.label = ""
        """The engine's version text, once they were looked at again."""
        self.files: tuple[facts.EngineFile, ...] = ()
        """Every file that the engine had mapped then."""
        self.log = ""
        """What an engine logged last that failed; empty where none did."""

    def end(self) -> EngineEnd:
        """What there is to tell of the engine when the stretch ends."""
        return EngineEnd(label=self.label, file=self.files, log=self.log)

    def note(self, engine: Engine) -> None:
        """Note what an engine that has loaded a point mapped; of each file the first sight stays."""
        for file in engine_libraries(engine, self._pin):
            self._first.setdefault(file.where, file)

    def again(self, engine: Engine) -> list[Finding]:
        """Rule 8: what is no longer as locked, or was touched since it was first seen."""
        seen, found = see_engine(self._world, engine, self._pin, rule="after-the-run")
        if seen is not None:
            self.label, self.files = seen.label, seen.file
        if found:
            return found
        now = engine_libraries(engine, self._pin)
        return [
            touched(file.where) for file in now if not is_untouched(self._first.get(file.where, file), file)
        ]
