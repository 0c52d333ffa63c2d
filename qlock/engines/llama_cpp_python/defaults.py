"""What a llama.cpp library says of its own parameter structs, as these bindings read them.

Run as ``python -m qlock.engines.llama_cpp_python.defaults``: it prints one line of JSON. A library of another version
may lay its structs out otherwise; then these bindings read its defaults at the wrong places, and they differ from those
of the library that the bindings were made for.

Does not live here: comparing two of them (``llama_cpp.agreement``).
"""

from __future__ import annotations

import ctypes
import json
import sys

from qlock.engines.llama_cpp_python.native import Library
from qlock.errors import EngineError

_PLAIN = (int, float, bool)


def defaults_of(struct: ctypes.Structure) -> dict[str, str]:
    """Each field by name; of pointers only whether they are null."""
    found = {}
    for field in struct._fields_:
        value = getattr(struct, field[0])
        found[field[0]] = repr(value) if isinstance(value, _PLAIN) else "null" if not value else "a pointer"
    return found


def main() -> int:
    """Print the version and the defaults of the library that is loaded."""
    try:
        library = Library()
    except EngineError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    api = library.api
    told = {
        "version": {"llama.cpp": api.llama_version().decode(errors="replace")},
        "model": defaults_of(api.llama_model_default_params()),
        "context": defaults_of(api.llama_context_default_params()),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
