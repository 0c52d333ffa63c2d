"""A real card: what NVML and the real package tell of it, without any stand-in."""

from __future__ import annotations

import pytest

from qlock.core.facts import Gpu
from qlock.core.visible import bus_address
from qlock.world import nvml
from qlock.world.interface import GpuSeen, Missing

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cards() -> tuple[GpuSeen, ...]:
    """The cards of this machine; no machine is asked to have one."""
    match nvml.gpus():
        case Missing(why=why):
            pytest.skip(f"there is no NVIDIA GPU: {why}")
        case ():
            pytest.skip("there is no NVIDIA GPU: the driver shows no card")
        case seen:
            return seen


def test_every_card_is_known_and_has_names_of_its_own(cards: tuple[GpuSeen, ...]) -> None:
    assert len({card.uuid for card in cards}) == len(cards)
    for card in cards:
        assert isinstance(card.gpu, Gpu)
        assert card.gpu.gpu_name
        assert card.gpu.pci_device_id.startswith("10de:")
        assert len(bus_address(card.pci_bus_id)) == 4
        unset = {name for name in Gpu.__struct_fields__ if not isinstance(getattr(card.gpu, name), str | int)}
        assert unset == set(card.untold)


def test_two_looks_see_the_same(cards: tuple[GpuSeen, ...]) -> None:
    assert nvml.gpus() == cards
