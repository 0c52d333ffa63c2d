"""Repositories as the Hub keeps them: commits, files in git and in LFS. Served by ``tests/fakes/hub.py``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

LFS_FROM_BYTES = 1_000
"""Smaller files are kept in git, and have no sha256 on the Hub."""


@dataclass(frozen=True)
class Content:
    """A file's bytes: a head, and zeros up to its size."""

    head: bytes
    size: int
    digest: str = ""
    """Of a file too large to be hashed in a test: hex, made up."""

    @property
    def is_lfs(self) -> bool:
        return self.size >= LFS_FROM_BYTES

    @property
    def sha256(self) -> str:
        return self.digest or hashlib.sha256(self.read(0, self.size)).hexdigest()

    @property
    def oid(self) -> str:
        """Git's name: of the bytes, or for a file in LFS of its pointer."""
        kept = self.pointer if self.is_lfs else self.read(0, self.size)
        return hashlib.sha1(b"blob %d\0" % len(kept) + kept).hexdigest()

    @property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()

    def read(self, start: int, end: int) -> bytes:
        piece = self.head[start:end]
        return piece + bytes(min(end, self.size) - start - len(piece))


def content(data: bytes) -> Content:
    return Content(head=data, size=len(data))


@dataclass(frozen=True)
class Commit:
    """One commit with all of its files."""

    files: Mapping[str, Content]
    title: str
    number: int
    repository: str

    @property
    def id(self) -> str:
        return hashlib.sha1(f"{self.repository} {self.number}".encode()).hexdigest()

    @property
    def date(self) -> str:
        """client: utils/_datetime.py, parse_datetime."""
        return f"2026-01-{self.number + 1:02d}T12:00:00.000Z"


@dataclass
class Repository:
    """A repository whose ``main`` is its last commit."""

    name: str
    kind: str = "model"
    commits: list[Commit] = field(default_factory=list)
    gated: bool = False
    """Its metadata are public, its files are for accounts with access (docs: models-gated)."""
    private: bool = False

    def commit(self, files: Mapping[str, bytes | Content], title: str = "Upload") -> str:
        """Add a commit that adds or replaces files; gives its id."""
        old = dict(self.commits[-1].files) if self.commits else {}
        new = {
            path: content(data) if isinstance(data, bytes) else data for path, data in sorted(files.items())
        }
        number = self.commits[-1].number + 1 if self.commits else 0
        self.commits.append(Commit(files=old | new, title=title, number=number, repository=self.name))
        return self.commits[-1].id

    def remove(self, path: str, title: str = "Delete") -> str:
        """Add a commit without a file."""
        self.commit({}, title)
        last = self.commits[-1]
        kept = {name: data for name, data in last.files.items() if name != path}
        self.commits[-1] = Commit(files=kept, title=title, number=last.number, repository=self.name)
        return last.id

    def squash(self) -> None:
        """Force-push: what was before the last commit is gone (``rev404``)."""
        last = self.commits[-1]
        self.commits = [
            Commit(files=last.files, title="Squash", number=last.number + 1, repository=self.name)
        ]

    def at(self, revision: str) -> Commit | None:
        if revision == "main" and self.commits:
            return self.commits[-1]
        return next((commit for commit in self.commits if commit.id == revision), None)

    def last_change(self, path: str, commit: Commit) -> Commit:
        """The commit that gave ``commit`` its file."""
        found = commit
        for earlier in reversed(self.commits[: self.commits.index(commit)]):
            if earlier.files.get(path) != commit.files[path]:
                break
            found = earlier
        return found
