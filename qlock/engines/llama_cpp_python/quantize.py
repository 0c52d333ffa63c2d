"""llama.cpp's own quantizer, in a child process: one GGUF in, one GGUF out.

Run as ``python -m qlock.engines.llama_cpp_python.quantize IN OUT TYPE THREADS``. Lives here: both sides of that, the
side that starts the child and the child itself. Does not live here: running models (``native``), and which
quantizations somebody wants (``flows.demo``).

NOTE: a source that is quantized already is quantized again. That loses more than starting from the original weights,
so whoever publishes a file made so has to say it.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path

from qlock.engines.interface import bare_environment
from qlock.engines.llama_cpp_python import last_words
from qlock.engines.llama_cpp_python.native import Library
from qlock.errors import AbsentError, EngineError, InputError
from qlock.world.process import Ended, Flooded, LineChild, Silent

FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q6_K": 18}
"""Names of ``llama-quantize`` and their numbers in ``enum llama_ftype`` (``include/llama.h``)."""

_MODULE = "qlock.engines.llama_cpp_python.quantize"
_SOURCE = Path(__file__).resolve().parents[3]
_DEADLINE_S = 1_800.0
_LINE_BYTES = 1 << 12
_ROWS_BYTES = 1 << 30
"""Of tensor rows kept in memory at once."""
_DONE = b"done"


def quantize(source: Path, target: Path, *, file_type: str, threads: int) -> None:
    """Write ``target``, ``source`` quantized; whole or not at all.

    Args:
        source: A GGUF of one file, quantized or not.
        target: Where the new file goes; one that is there is replaced.
        file_type: A name of ``FILE_TYPES``.
        threads: How many to compute with; the bytes are the same for any number.

    Raises:
        InputError: No file type of that name is known.
        EngineError: The quantizer did not start, refused, died or hung.
        AbsentError: The new file cannot be put in its place.
    """
    if file_type not in FILE_TYPES:
        raise InputError(f"got the file type `{file_type}`, expected one of {', '.join(FILE_TYPES)}")
    unfinished = target.with_name(f"{target.name}.partial")
    try:
        with tempfile.TemporaryDirectory(prefix="qlock-quantize-") as folder:
            _ask_child((str(source), str(unfinished), file_type, str(threads)), Path(folder))
        unfinished.replace(target)
    except OSError as error:
        raise AbsentError(f"cannot write `{target}`: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _ask_child(words: tuple[str, ...], folder: Path) -> None:
    log = folder / "log"
    environment = bare_environment(folder) | {"PYTHONPATH": str(_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = (sys.executable, "-P", "-s", "-X", "utf8", "-m", _MODULE, *words)
    try:
        with LineChild(argv, env=environment, cwd=folder, log=log) as child:
            heard = child.read_line(_DEADLINE_S, _LINE_BYTES)
            how = child.close()
    except AbsentError as error:
        raise EngineError(f"the quantizer did not start: {error.message}") from error
    match heard:
        case bytes():
            failure = "" if heard == _DONE else f"the quantizer answered nonsense: got `{heard[:40]!r}`"
        case Ended():
            failure = f"the quantizer died ({how})"
        case Silent(after_s=after_s):
            failure = f"the quantizer did not finish within {after_s:g} s"
        case Flooded():
            failure = "the quantizer answered nonsense: got a line that does not end"
    if failure:
        said = last_words(log.read_text("utf-8", "replace") if log.exists() else "")
        raise EngineError(failure + (f": {said}" if said else ""))


def _quantize_here(source: str, target: str, file_type: str, threads: int) -> int:
    """llama.cpp's answer: 0 when the file is written. No parameter is left to a default that may move."""
    api = Library().api
    fields: dict[str, object] = {
        "nthread": threads,
        "ftype": FILE_TYPES[file_type],
        # The count of all types stands for "as the file type says".
        "output_tensor_type": api.GGML_TYPE_COUNT,
        "token_embedding_type": api.GGML_TYPE_COUNT,
        "allow_requantize": True,
        "quantize_output_tensor": True,
        "only_copy": False,
        "pure": False,
        "keep_split": False,
        "dry_run": False,
        "imatrix": None,
        "kv_overrides": None,
        "tt_overrides": None,
        "prune_layers": None,
        "max_buf_size": _ROWS_BYTES,
    }
    params = api.llama_model_quantize_params()
    strange = fields.keys() ^ {name for name, _ in params._fields_}
    if strange:
        raise EngineError(
            f"this llama-cpp-python quantizes with other parameters: `{'`, `'.join(sorted(strange))}`"
        )
    for name, value in fields.items():
        setattr(params, name, value)
    code: int = api.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params))
    return code


def main() -> int:
    """Quantize as the command line says; a line ``done`` on stdout is the only success."""
    source, target, file_type, threads = sys.argv[1:]
    code = _quantize_here(source, target, file_type, int(threads))
    if code == 0:
        sys.stdout.buffer.write(_DONE + b"\n")
        sys.stdout.flush()
    return min(code, 1)


if __name__ == "__main__":
    sys.exit(main())
