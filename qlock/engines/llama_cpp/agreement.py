"""Whether llama-cpp-python can drive the libraries of a build: tried, not taken for granted.

The bindings hold llama.cpp's parameter structs as they were in one version. Their defaults are read once with the
bindings' own libraries and once with those of the build; where a struct is laid out otherwise, the values lie elsewhere
and differ. What the build then computes is held against its own llama-server (``scoring``).

Does not live here: reading them (``llama_cpp_python.defaults``).
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.tools import printed
from qlock.errors import EngineError

_MODULE = "qlock.engines.llama_cpp_python.defaults"
_SOURCE = Path(__file__).resolve().parents[3]
_DEADLINE_S = 60.0

Defaults = dict[str, dict[str, str]]


def disagreement(folder: Path, *, home: Home) -> str:
    """Why the bindings cannot drive the libraries in a folder; empty when they can."""
    try:
        own = _defaults(home, None)
        of_build = _defaults(home, folder)
    except EngineError as error:
        return error.message
    return difference(own, of_build)


def difference(own: Defaults, of_build: Defaults) -> str:
    """The first default that the bindings read otherwise; versions may differ, since structs outlive them."""
    for struct in ("model", "context"):
        for name, expected in own[struct].items():
            got = of_build[struct].get(name, "nothing")
            if got != expected:
                return (
                    f"llama-cpp-python reads `{name} = {got}` from the build, expected `{expected}`:"
                    f" it was made for {own['version']['llama.cpp']}, and this is {of_build['version']['llama.cpp']}"
                )
    return ""


def _defaults(home: Home, folder: Path | None) -> Defaults:
    more = {"PYTHONPATH": str(_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    if folder is not None:
        more["LLAMA_CPP_LIB_PATH"] = str(folder)
    arguments = ("-P", "-s", "-X", "utf8", "-m", _MODULE)
    text = printed(Path(sys.executable), *arguments, home=home, deadline_s=_DEADLINE_S, more=more)
    lines = [line for line in text.split("\n") if line.startswith('{"version"')]
    try:
        return msgspec.json.decode(lines[-1] if lines else "", type=Defaults)
    except msgspec.DecodeError as error:
        raise EngineError("llama-cpp-python does not say the defaults of its structs") from error
