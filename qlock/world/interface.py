"""What the effects floor offers: one protocol per kind of effect, the data they speak, and ``World``.

The modules of this folder are the real thing: ``world.files`` is a ``Files``, ``world.host`` a ``Host``, and so
on, each with the method names below. ``world.real`` puts them into a ``World``; ``tests/fakes/world.py`` puts
other ones there. A ``World`` is built once, in ``cli.main``, and passed as an argument.

Whatever these methods raise is a ``QlockError``: ``AbsentError`` when something is not there or the machine
refuses, ``InputError`` when what is there is not what it should be. Does not live here: any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count
from qlock.core.digest import Digest
from qlock.core.facts import Device, EngineFile, Gpu
from qlock.errors import AbsentError

RepositoryKind = Literal["model", "dataset"]


class HeldError(AbsentError):
    """Another process holds a folder, or might; whoever can wait may ask again."""


class UndoneError(AbsentError):
    """A tool said no, or is not here: nothing was done."""


class Missing(Base, frozen=True, kw_only=True):
    """A fact that could not be seen, and why. It stands where the fact would stand, so that none becomes 0."""

    why: str


class Prefix(Base, frozen=True, kw_only=True):
    """The first bytes of a file."""

    data: bytes
    size_bytes: Count
    """Of the whole file."""


class FileDigest(Base, frozen=True, kw_only=True):
    """A whole file's digests."""

    size_bytes: Count
    sha256: Digest
    blake3: Digest
    cached: bool
    """Taken from an earlier pass over the same unchanged file, not from its bytes now."""


class Blake3Digest(Base, frozen=True, kw_only=True):
    """A whole file's blake3 alone, which is several times faster to take than sha256."""

    size_bytes: Count
    blake3: Digest
    cached: bool
    """As in ``FileDigest``."""


class MappedFile(Base, frozen=True, kw_only=True):
    """One file-backed mapping with code in it, as ``/proc/PID/maps`` had it."""

    path: str
    """Absolute, as that process saw it."""
    device: str
    """``major:minor`` in hex. NOTE: not always the ``st_dev`` of the file (btrfs, overlayfs)."""
    inode: Count
    deleted: bool
    """The name has been removed, or given to another file, since it was mapped."""


class Memory(Base, frozen=True, kw_only=True):
    """Memory that this process may use."""

    total_bytes: Count
    available_bytes: Count
    limited_by: str
    """``machine``, or the control group that allows less."""


class Surroundings(Base, frozen=True, kw_only=True):
    """What belongs to one run on one machine, and is never locked."""

    host_name: str
    boot_id: str
    kernel: str
    python: str


class GpuSeen(Base, frozen=True, kw_only=True):
    """One card, or one MIG slice of a card, as the driver shows it."""

    index: Count
    """The driver's number of the card. NOTE: not CUDA's, which ``CUDA_VISIBLE_DEVICES`` rearranges."""
    gpu: Gpu | Missing
    untold: dict[str, str]
    """Why, for each field of ``gpu`` that is unset."""
    uuid: str
    """Of the slice, where it is one; empty where the card tells none."""
    card_uuid: str
    """Of the whole card."""
    instance: str
    """``GPU INSTANCE/COMPUTE INSTANCE`` of a MIG slice; empty for a whole card."""
    pci_bus_id: str
    driver_version: str


class HubFile(Base, frozen=True, kw_only=True):
    """One file of a repository on the Hub, as the Hub's own metadata has it."""

    path: str
    """In the repository, with ``/``."""
    size_bytes: Count
    """Of the file itself, not of a pointer to it."""
    oid: str
    """Git's name of the blob, in hex. NOTE: for a file in LFS it names the pointer, not the bytes."""
    sha256: Digest | UnsetType = UNSET
    """Of the file; unset where it is not in LFS, since the Hub publishes none then."""


class Snapshot(Base, frozen=True, kw_only=True):
    """A repository on the Hub at one commit."""

    repository: str
    """``OWNER/NAME``."""
    commit: str
    """40 hex digits."""
    kind: RepositoryKind


class HubListing(Base, frozen=True, kw_only=True):
    """What a revision of a repository holds."""

    snapshot: Snapshot
    files: tuple[HubFile, ...]
    """In path order."""


class HubChange(Base, frozen=True, kw_only=True):
    """The last upstream commit that changed a file."""

    commit: str
    title: str
    """Of that commit: untrusted text, to be escaped wherever it is shown."""
    date: str
    """``2026-01-31``, in UTC."""
    file: HubFile
    """As it is after that commit."""


class SlurmTask(Base, frozen=True, kw_only=True):
    """One element of an array, as Slurm has it in its queue or in its accounts."""

    job: str
    """Of the array."""
    index: Count
    state: str
    """Slurm's word in capitals: ``PENDING``, ``RUNNING``, ``TIMEOUT`` …"""
    reason: str
    """Why it waits, or with which exit code it ended; empty when Slurm says nothing."""
    node: str
    left_s: Count | Missing
    """Until its time limit."""


class Clock(Protocol):
    """Dates and durations."""

    def now(self) -> datetime:
        """The date, in UTC and with its zone."""

    def monotonic_s(self) -> float:
        """Seconds since some moment, never going back; for durations."""

    def sleep_s(self, duration_s: float) -> None:
        """Wait."""


class Files(Protocol):
    """Whole files and their first bytes."""

    def read_bounded(self, path: Path, max_bytes: int, what: str) -> bytes:
        """All bytes of a regular file of at most ``max_bytes``; ``what`` names it in an error (``spec``)."""

    def read_prefix(self, path: Path, max_bytes: int, what: str) -> Prefix:
        """At most the first ``max_bytes`` of a regular file of any size."""

    def read_lines(self, path: Path, max_bytes: int, what: str) -> Iterator[bytes]:
        """The lines of a regular file of at most ``max_bytes``, each with its newline where it has one."""

    def write_atomic(self, path: Path, data: bytes) -> None:
        """Put ``data`` in the place of ``path``: afterwards it has the old bytes or all of the new ones."""


class Digests(Protocol):
    """Digests of files of any size."""

    def digest_file(self, path: Path, *, cache: Path | None, rehash: bool = False) -> FileDigest:
        """Both digests in one pass, or from the cache folder unless ``rehash``."""

    def blake3_file(self, path: Path, *, cache: Path | None, rehash: bool = False) -> Blake3Digest:
        """blake3 alone, or from the cache folder unless ``rehash``."""

    def copy_file(self, path: Path, target: Path) -> Blake3Digest:
        """Copy a file, and give the digest of the bytes that were written."""

    def spans_digest(self, path: Path, spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        """``blake3:…`` of each ``(offset, size)`` in bytes."""


class Journal(Protocol):
    """An open append-only file of JSON lines."""

    @property
    def torn_bytes(self) -> int:
        """Bytes of an unfinished last line that were dropped when it was opened."""

    def rows(self) -> Iterator[bytes]:
        """The rows, first to last, without their newline."""

    def append(self, row: bytes, *, sync: bool = True) -> None:
        """Write one row; with ``sync`` it is on the disk when this returns."""

    def sync(self) -> None:
        """Put on the disk what was appended without."""

    def close(self) -> None:
        """Sync and close; safe to call twice."""


class Journals(Protocol):
    """Opens journals."""

    def open_journal(self, path: Path) -> AbstractContextManager[Journal]:
        """The journal at ``path``, made if it is not there."""


class Folders(Protocol):
    """One run, one folder."""

    def hold(self, folder: Path) -> AbstractContextManager[None]:
        """Keep every other qlock process out of ``folder``; ``HeldError`` when one is in it."""

    def release(self, folder: Path, jobs: Collection[str]) -> None:
        """Remove what holders left in ``folder`` that were part of these Slurm jobs, which have ended."""


class Maps(Protocol):
    """What a running process has mapped."""

    def read_maps(self, pid: int) -> tuple[MappedFile, ...]:
        """Files mapped with code by a process."""

    def engine_files(
        self,
        mapped: Sequence[MappedFile],
        *,
        build_folders: Sequence[Path],
        digest: Callable[[Path], FileDigest],
    ) -> tuple[EngineFile, ...]:
        """The same files as they are locked: role, digests, digest of the code."""


class Host(Protocol):
    """The machine."""

    def device(self, name: str = "") -> Device:
        """The CPU; named by its vendor and model unless a name is given."""

    def memory(self) -> Memory:
        """What this process may use now."""

    def surroundings(self) -> Surroundings:
        """Host name, kernel and the like."""


class Nvml(Protocol):
    """NVIDIA's cards."""

    def gpus(self) -> tuple[GpuSeen, ...] | Missing:
        """Every card that this process may see; ``Missing`` when there is no driver."""


class Amd(Protocol):
    """AMD's cards."""

    def gpus(self) -> tuple[GpuSeen, ...] | Missing:
        """Every card that the kernel drives; ``Missing`` when there is no driver."""


class Wheels(Protocol):
    """Files that came with installed Python packages."""

    def member(self, source: str) -> Path:
        """Where ``NAME==VERSION/MEMBER`` lies."""


class Hub(Protocol):
    """Files of the Hugging Face Hub. Errors are one clear line each, and no token is ever in one."""

    def commit_of(self, repository: str, revision: str, *, kind: RepositoryKind = "model") -> str:
        """The commit that a branch, tag or commit names now."""

    def listing(
        self, repository: str, revision: str, *, kind: RepositoryKind = "model", paths: Sequence[str] = ()
    ) -> HubListing:
        """Every file at a revision, or those of ``paths`` that are there, without reading any of them."""

    def read_range(self, snapshot: Snapshot, path: str, *, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer only where the file ends."""

    def fetch(
        self, snapshot: Snapshot, file: HubFile, *, progress: Callable[[int], None] | None = None
    ) -> Path:
        """Where the file lies in the Hub's cache, downloaded first where it does not, and checked on the way in.

        ``progress`` is told how many bytes of it are here.
        """

    def cached(self, snapshot: Snapshot, path: str) -> Path | None:
        """Where the file lies in the Hub's cache; ``None`` when it does not. Makes no request."""

    def changed_since(self, snapshot: Snapshot, path: str, *, revision: str) -> HubChange | Missing:
        """Which upstream commit gave ``revision`` another file than the snapshot has."""

    def offline(self) -> Hub:
        """The same, except that it makes no request."""


class Remote(Protocol):
    """Files behind plain ``https`` addresses, whose digest the spec brings. No message shows a whole address."""

    def size_bytes(self, url: str) -> int:
        """The size of the file."""

    def read_range(self, url: str, *, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer only where the file ends."""

    def cached(self, url: str, sha256: Digest) -> Path | None:
        """Where the file lies in qlock's cache; ``None`` when it does not. Makes no request."""

    def fetch(self, url: str, *, sha256: Digest, progress: Callable[[int], None] | None = None) -> Path:
        """Where the file lies in qlock's cache, downloaded first where it does not, and checked before it is there."""

    def offline(self) -> Remote:
        """The same, except that it makes no request."""


class Slurm(Protocol):
    """The scheduler. ``AbsentError`` where its tools are not on the PATH or its controller does not answer."""

    def submit(self, script: Path) -> str:
        """Queue a batch script; gives the number of the job."""

    def queue(self) -> tuple[SlurmTask, ...]:
        """Every element of this user's arrays that waits or runs."""

    def array_limit(self) -> int | Missing:
        """How many elements an array may have; their indices go from 0 to one less."""

    def accounts(self, jobs: Sequence[str]) -> tuple[SlurmTask, ...] | Missing:
        """How the elements of these jobs ended, as far as Slurm keeps accounts."""

    def cancel(self, jobs: Sequence[str]) -> None:
        """End these jobs; one that has ended is passed over."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """All effects, one of each."""

    clock: Clock
    files: Files
    digests: Digests
    journals: Journals
    folders: Folders
    maps: Maps
    host: Host
    nvml: Nvml
    amd: Amd
    wheels: Wheels
    hub: Hub
    remote: Remote
    slurm: Slurm
    environment: Mapping[str, str]
    """The environment variables as they were when qlock started."""
    cwd: Path
    cache_folder: Path
    """Where qlock may keep what can be computed again; not made until something is kept there."""
