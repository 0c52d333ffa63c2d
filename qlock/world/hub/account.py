"""Where the Hub is, who asks, and where its cache lies, told from the environment variables.

These are huggingface_hub's own variables, read as that library reads them (2.4.0, ``constants.py``), so that qlock and
other programs share one cache and one login. They are read anew for each ``Hub``, while the library reads them once.

Does not live here: any request.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.errors import InputError
from qlock.world import files

_PUBLIC = "https://huggingface.co"
_TRUE = {"1", "ON", "YES", "TRUE"}
_TOKEN = re.compile(r"hf_[A-Za-z0-9_]{6,}")
_MOST_TOKEN_BYTES = 4_096


class Account(Base, frozen=True, kw_only=True):
    """What the environment says about the Hub."""

    endpoint: str
    """``https://huggingface.co`` unless ``HF_ENDPOINT`` says otherwise; without a final ``/``."""
    cache: str
    """The folder of the Hub's cache."""
    token: str
    """Empty without a login. NOTE: it never leaves this floor, and no message may hold it."""
    is_offline: bool

    def __repr__(self) -> str:
        return f"Account(endpoint={self.endpoint!r}, cache={self.cache!r}, is_offline={self.is_offline!r})"

    def redacted(self, text: str) -> str:
        """A server's text for one line of a message, without any token."""
        if self.token:
            text = text.replace(self.token, "…")
        return for_message(_TOKEN.sub("hf_…", text))


def account_of(environment: Mapping[str, str]) -> Account:
    """What these environment variables say.

    Raises:
        InputError: ``HF_ENDPOINT`` is no address, or holds a password.
    """
    home = _home(environment)
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    return Account(
        endpoint=_endpoint(environment.get("HF_ENDPOINT") or _PUBLIC),
        cache=_expanded(cache, environment) if cache else os.path.join(home, "hub"),  # noqa: PTH118 - text
        token=_token(environment, home),
        is_offline=is_offline(environment),
    )


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether these environment variables forbid the network, for the Hub and for any other address."""
    return any(
        environment.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _endpoint(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        # Not shown: it may hold a password.
        raise InputError("HF_ENDPOINT is no address, expected `https://HOST` without user or password")
    return text.rstrip("/")


def _home(environment: Mapping[str, str]) -> str:
    """The folder of everything that huggingface_hub keeps."""
    if asked := environment.get("HF_HOME"):
        return _expanded(asked, environment)
    shared = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    return str(Path(_expanded(shared, environment)) / "huggingface")


def _expanded(path: str, environment: Mapping[str, str]) -> str:
    """A path with ``~`` and ``$NAME`` in it, as an absolute one."""
    home = environment.get("HOME") or str(Path.home())
    text = re.sub(
        r"\$(?:(\w+)|\{(\w+)\})", lambda found: environment.get(found[1] or found[2], found[0]), path
    )
    if text == "~" or text.startswith("~/"):
        text = home + text[1:]
    return str(Path(text).absolute())


def _token(environment: Mapping[str, str], home: str) -> str:
    """The token of ``HF_TOKEN``, else the one that ``hf auth login`` left."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if found := environment.get(name, "").strip():
            return found
    if environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in _TRUE:
        return ""
    asked = environment.get("HF_TOKEN_PATH")
    path = Path(_expanded(asked, environment)) if asked else Path(home) / "token"
    if not path.is_file():
        return ""
    return files.read_bounded(path, _MOST_TOKEN_BYTES, "token file").decode(errors="replace").strip()
