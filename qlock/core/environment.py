"""Variables that a spec may give the processes of an engine.

Nothing of the surroundings reaches these processes: their environment holds what qlock sets, what leaves them the cards of
the device alone, and what the spec names, which is in the lock. Does not live here: making it (``engines``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from qlock.core.escape import for_message

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_MOST_BYTES = 65_536
OWN_VARIABLES = frozenset(
    [
        "HOME",
        "XDG_CONFIG_HOME",
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
        "LC_ALL",
        "NO_COLOR",
        "GGML_NO_BACKTRACE",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "LLAMA_CPP_LIB_PATH",
        "OMP_DYNAMIC",
        "OMP_PROC_BIND",
        "GOMP_SPINCOUNT",
        "OPENBLAS_NUM_THREADS",
    ]
)
"""What no spec can set: qlock does, for every engine or for the cards of the device."""


def refuse_variables(variables: Mapping[str, str]) -> None:
    """Refuse variables that qlock sets itself, and what is none.

    Raises:
        ValueError: One of them is named, or a name or a value is not possible.
    """
    for name, text in variables.items():
        if name in OWN_VARIABLES:
            raise ValueError(f"got the variable `{name}`, which qlock sets itself")
        if not _NAME.fullmatch(name):
            raise ValueError(f"got the variable `{for_message(name)}`, expected letters, digits and `_`")
        if "\0" in text or len(text.encode()) > _MOST_BYTES:
            raise ValueError(
                f"the variable `{name}` has a value that no process can be given: got a NUL, or more than"
                f" {_MOST_BYTES} bytes"
            )
