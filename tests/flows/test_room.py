"""Memory is asked for before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.engines.interface import Load
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
        check_room(world, Load(weights=(weights,), setting=a_setting(context_tokens=2048, slots=2)))
    size = Path(weights).stat().st_size
    assert str(caught.value) == (
        f"the point needs at least 94.4 MB of memory (weights {size} B, KV cache 94.4 MB), "
        "and there is 10.0 MB (machine)"
    )
    assert caught.value.hint == (
        "lower `slots`, `replicas` or `context_tokens` of the setting, or measure on a larger machine"
    )


@pytest.mark.parametrize("mmap, copies", [(True, 1), (False, 3)])
def test_replicas_have_caches_of_their_own_and_map_the_weights_together(
    tmp_path: Path, *, mmap: bool, copies: int
) -> None:
    world = msgspec.structs.replace(real_world(), host=SmallHost())
    weights = model(tmp_path)
    setting = a_setting(context_tokens=2048, slots=1, replicas=3, mmap=mmap)
    with pytest.raises(AbsentError) as caught:
        check_room(world, Load(weights=(weights,), setting=setting))
    size = copies * Path(weights).stat().st_size
    assert f"(weights {size} B, KV cache 141.6 MB)" in str(caught.value)


def test_a_point_that_fits_passes(tmp_path: Path) -> None:
    world = msgspec.structs.replace(real_world(), host=SmallHost())
    check_room(world, Load(weights=(model(tmp_path),), setting=a_setting(context_tokens=256, slots=1)))


def test_a_point_and_its_reference_must_fit_together(tmp_path: Path) -> None:
    world = msgspec.structs.replace(real_world(), host=SmallHost())
    half = Load(weights=(model(tmp_path),), setting=a_setting(context_tokens=256, slots=1))
    other = msgspec.structs.replace(half, setting=a_setting(name="other", context_tokens=256, slots=1))
    check_room(world, half, beside=half)
    with pytest.raises(AbsentError) as caught:
        check_room(world, half, beside=other)
    size = Path(half.weights[0]).stat().st_size  # the same files are there once
    assert str(caught.value) == (
        "the point and its reference beside it need at least 11.8 MB of memory "
        f"(weights {size} B, KV cache 11.8 MB), and there is 10.0 MB (machine)"
    )
    assert caught.value.hint == (
        "set `stored = true` in the suite, with `traces` also `stored_tokens`: "
        "then they are loaded one after the other"
    )
