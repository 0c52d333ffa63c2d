"""Texts as token ids under a vocabulary without weights, which no llama-server starts with.

The embedded engine's worker reads it on the build's own libraries, where llama-cpp-python can drive them
(``agreement``). Does not live here: texts under a loaded point (``questions``).
"""

from __future__ import annotations

from pathlib import Path

from qlock.engines.llama_cpp.agreement import disagreement
from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.tools import Build
from qlock.engines.llama_cpp_python import Deadlines, LlamaCppPython, open_engine
from qlock.errors import EngineError


def open_reader(build: Build, *, home: Home, progress_s: float) -> LlamaCppPython:
    """A worker on the libraries of a build, for vocabularies alone.

    Args:
        build: Whose libraries.
        home: Where processes run.
        progress_s: How long the worker may show no progress.

    Raises:
        EngineError: llama-cpp-python cannot drive these libraries, or the worker did not start.
    """
    folder = Path(build.folder).resolve()
    why = disagreement(folder, home=home)
    if why:
        raise EngineError(f"a vocabulary cannot be read without its weights: {why}")
    return open_engine(
        lib_folder=folder,
        variables=home.variables,
        deadlines=Deadlines(progress_s=progress_s),
    )
