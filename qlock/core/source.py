"""Where a file is said to come from: ``file:``, ``wheel:``, ``hub:`` and ``url:`` as a tagged union.

Does not live here: looking there (``flows.places``).
"""

from __future__ import annotations

import re

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.errors import InputError

_WHEEL = re.compile(r"^(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+)/(?P<member>[^\0]+)$")
_HUB = re.compile(r"^(?P<repository>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)[/:](?P<path>[^\0]+)$")


class FileSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """A path, relative to the folder of the spec."""

    path: str


class WheelSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="wheel"):
    """A file of an installed Python package."""

    package: str
    """``NAME==VERSION``."""
    member: str


class HubSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="hub"):
    """A file of a repository on the Hub, or a quant's name in it."""

    repository: str
    path: str


class UrlSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="url"):
    """A file behind an https address."""

    url: str


Source = FileSource | WheelSource | HubSource | UrlSource


def parse_source(text: str) -> Source:
    """The source that ``text`` names.

    Raises:
        InputError: It names none of the four kinds, or is not in the form of its kind.
    """
    kind, _, rest = text.partition(":")
    wheel, hub = _WHEEL.match(rest), _HUB.match(rest)
    if kind == "file" and rest and "\0" not in rest:
        return FileSource(path=rest)
    if kind == "wheel" and wheel:
        return WheelSource(package=wheel["package"], member=wheel["member"])
    if kind == "hub" and hub:
        return HubSource(repository=hub["repository"], path=hub["path"])
    if kind == "url" and rest.startswith("https://"):
        return UrlSource(url=rest)
    raise InputError(
        f"got `{for_message(text)}`, expected file:PATH, wheel:NAME==VERSION/MEMBER, "
        "hub:OWNER/REPO/FILE or url:https://…"
    )


def file_name(source: Source) -> str:
    """The last part of the source: the name that the file goes by in a lock."""
    match source:
        case FileSource(path=path) | HubSource(path=path):
            return path.rstrip("/").rpartition("/")[2]
        case WheelSource(member=member):
            return member.rpartition("/")[2]
        case UrlSource(url=url):
            return url.partition("?")[0].rpartition("/")[2]
