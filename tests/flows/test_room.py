"""Memory is asked for before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.errors import AbsentError
from qlock.flows.room import check_room
from qlock.world.interface import Memory
from qlock.world.real import real_world
from tests.broken.make_gguf import STRING, U32, gguf, kv
from tests.fakes.documents import a_setting
from tests.fakes.world import FixedHost


class SmallHost(FixedHost):
    """A host with 10 MB of memory."""

    def memory(self) -> Memory:
        return Memory(total_bytes=10_000_000, available_bytes=5_000_000, limited_by="machine")


def model(folder: Path) -> str:
    path = folder / "m.gguf"
    keys = [
        kv("general.architecture", STRING, "llama"),
        kv("llama.block_count", U32, 30),
        kv("llama.embedding_length", U32, 576),
        kv("llama.attention.head_count", U32, 9),
        kv("llama.attention.head_count_kv", U32, 3),
    ]
    path.write_bytes(gguf(keys, []))
    return str(path)


def test_a_point_that_does_not_fit_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    world = msgspec.structs.replace(real_world(), host=SmallHost())
    weights = model(tmp_path)
    with pytest.raises(AbsentError) as caught:
        check_room(world, (weights,), a_setting(context_tokens=2048, slots=2))
    size = Path(weights).stat().st_size
    assert str(caught.value) == (
        f"the point needs at least 94.4 MB of memory (weights {size} B, KV cache 94.4 MB), "
        "and there is 10.0 MB (machine)"
    )
    assert caught.value.hint == (
        "lower `slots` or `context_tokens` of the setting, or measure on a larger machine"
    )


def test_a_point_that_fits_passes(tmp_path: Path) -> None:
    world = msgspec.structs.replace(real_world(), host=SmallHost())
    check_room(world, (model(tmp_path),), a_setting(context_tokens=256, slots=1))
