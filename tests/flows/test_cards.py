"""The cards that an engine may use, and what leaves its processes some of them alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.flows.cards import Usable, usable, variables
from qlock.world.interface import GpuSeen, Missing
from tests.fakes.world import L4, ScriptedAmd, ScriptedNvml, fake_world, seen

MI = msgspec.structs.replace(L4, gpu_name="AMD INSTINCT MI210", compute_capability="gfx90a")


def amd(number: int, *, uuid: str = "", is_known: bool = True) -> GpuSeen:
    (one,) = seen(MI)
    untold = {} if is_known else {"compute_capability": "KFD does not know the card"}
    address = f"0000:2{number}:00.0"
    return msgspec.structs.replace(one, uuid=uuid, card_uuid=uuid, pci_bus_id=address, untold=untold)


def card(one: GpuSeen, *, rocm_number: int = -1, maker: str = "AMD") -> Usable:
    assert not isinstance(one.gpu, Missing)
    return Usable(
        maker="NVIDIA" if maker == "NVIDIA" else "AMD", gpu=one.gpu, seen=one, rocm_number=rocm_number
    )


def test_cards_of_both_makers_are_found_nvidias_first(tmp_path: Path) -> None:
    theirs = (amd(0), amd(1, is_known=False))
    world = msgspec.structs.replace(
        fake_world(tmp_path), nvml=ScriptedNvml(seen(L4)), amd=ScriptedAmd(theirs), environment={}
    )
    cards, why = usable(world)
    assert cards == (card(seen(L4)[0], maker="NVIDIA"), card(theirs[0], rocm_number=0), card(theirs[1]))
    assert why == ""


def test_why_some_cards_are_left_out_is_told_of_both_makers(tmp_path: Path) -> None:
    kept_away = msgspec.structs.replace(amd(1), gpu=Missing(why="AMD GPU `1` may not be used"))
    world = msgspec.structs.replace(
        fake_world(tmp_path),
        nvml=ScriptedNvml(seen(L4)),
        amd=ScriptedAmd((amd(0), kept_away)),
        environment={"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0,1"},
    )
    cards, why = usable(world)
    assert [one.seen.pci_bus_id for one in cards] == ["0000:20:00.0"]
    assert why == "CUDA_VISIBLE_DEVICES is ``; AMD GPU `1` may not be used"


@pytest.mark.parametrize(
    "cards, expected",
    [
        ((), {}),
        ((card(seen(L4)[0], maker="NVIDIA"),), {"CUDA_VISIBLE_DEVICES": seen(L4)[0].uuid}),
        (
            (card(amd(0, uuid="GPU-a"), rocm_number=0), card(amd(2, uuid="GPU-c"), rocm_number=2)),
            {"ROCR_VISIBLE_DEVICES": "GPU-a,GPU-c"},
        ),
        ((card(amd(1), rocm_number=1),), {"ROCR_VISIBLE_DEVICES": "1"}),
        ((card(amd(0, uuid="GPU-a")),), {}),
        (
            (card(seen(L4)[0], maker="NVIDIA"), card(amd(1), rocm_number=1)),
            {"CUDA_VISIBLE_DEVICES": seen(L4)[0].uuid, "ROCR_VISIBLE_DEVICES": "1"},
        ),
    ],
)
def test_cards_are_named_by_uuid_else_by_rocms_number(
    cards: tuple[Usable, ...], expected: dict[str, str]
) -> None:
    assert variables(cards) == expected
