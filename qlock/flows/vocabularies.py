"""Headers of models whose weights are elsewhere, cut down to their vocabularies; each is kept once, while resolving.

Does not live here: what a vocabulary is (``core.gguf_vocabulary``), and asking under one (``flows.prompts_ahead``).
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Self

from qlock.core.digest import Digest
from qlock.core.gguf import Header
from qlock.core.gguf_vocabulary import vocabulary_digest, vocabulary_file
from qlock.world.scratch import filling, scratch


class Vocabularies:
    """A temporary folder of them, made when the first is kept; a context manager. Several threads may keep at once."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._kept: set[Digest] = set()
        self._lock = threading.Lock()

    def keep(self, header: Header) -> Digest:
        """Keep the vocabulary of a header, and give its digest.

        Raises:
            AbsentError: The temporary folder has no room.
        """
        digest = vocabulary_digest(header)
        with self._lock:
            if digest not in self._kept:
                if self._folder is None:
                    self._folder = scratch("qlock-vocabularies-")
                with filling():
                    self.path(digest).write_bytes(vocabulary_file(header))
                self._kept.add(digest)
        return digest

    def path(self, digest: Digest) -> Path:
        """Where a kept vocabulary lies: a GGUF without tensors."""
        assert self._folder is not None
        return self._folder / f"{digest.partition(':')[2]}.gguf"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
