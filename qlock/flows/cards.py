"""The cards of this machine that an engine may use: NVIDIA's and AMD's, as far as they can be told apart.

Lives here: what the drivers show, what the environment leaves of it, and the variables that leave an engine's processes
certain cards alone. Does not live here: asking a driver (``world.nvml``, ``world.amd``), and which cards a spec or a lock
means (``flows.device``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.visible import VARIABLE, Card, Visible, visible
from qlock.core.visible_amd import ROCR, visible_amd
from qlock.errors import AbsentError
from qlock.world.interface import GpuSeen, Missing, World

Maker = Literal["NVIDIA", "AMD"]


class Usable(Base, frozen=True, kw_only=True):
    """A card that an engine may use."""

    maker: Maker
    gpu: facts.Gpu
    seen: GpuSeen
    rocm_number: int
    """ROCm's number of it, without any variable; −1 for a card that ROCm does not know."""


def usable(world: World) -> tuple[tuple[Usable, ...], str]:
    """The cards that an engine may use, NVIDIA's in CUDA's order and AMD's in ROCm's, and what leaves others out.

    Raises:
        AbsentError: There is none, with the reason; or a driver does not answer.
        InputError: A variable about visible cards means nothing.
    """
    whys: list[str] = []
    found = [*_of_nvidia(world, whys), *_of_amd(world, whys)]
    if not found:
        raise no_gpu("; ".join(whys))
    return tuple(found), "; ".join(whys)


def no_gpu(why: str) -> AbsentError:
    """The error to raise where no card can be used."""
    return AbsentError(
        f"no GPU can be used: {why}",
        hint="`qlock doctor` shows what this machine has; `nvidia-smi` and `rocm-smi` its cards",
    )


def variables(cards: Sequence[Usable]) -> dict[str, str]:
    """What the environment of an engine's processes must have for them to see these cards alone.

    NVIDIA's cards are named by UUID. So are AMD's where they have one, else by ROCm's number. For a card that ROCm does
    not know there is no such variable, and Vulkan heeds none: then only the PCI address that the engine tells of the card
    it uses says which one that is.
    """
    nvidia = [card.seen.uuid for card in cards if card.maker == "NVIDIA"]
    amd = [card for card in cards if card.maker == "AMD"]
    found = {VARIABLE: ",".join(nvidia)} if nvidia else {}
    if amd and all(card.rocm_number >= 0 for card in amd):
        found[ROCR] = ",".join(card.seen.uuid or str(card.rocm_number) for card in amd)
    return found


def _of_nvidia(world: World, whys: list[str]) -> Iterator[Usable]:
    match world.nvml.gpus():
        case Missing(why=why):
            whys.append(why)
        case ():
            whys.append("the NVIDIA driver shows no card")
        case seen:
            left = visible([_card(one) for one in seen], world.environment)
            yield from _left("NVIDIA", seen, left, whys, numbers={})


def _of_amd(world: World, whys: list[str]) -> Iterator[Usable]:
    match world.amd.gpus():
        case Missing() | ():
            return
        case seen:
            known = [one for one in seen if _is_known_to_rocm(one)]
            left = visible_amd([_card(one) for one in seen], len(known), world.environment)
            numbers = {one.pci_bus_id: number for number, one in enumerate(known)}
            yield from _left("AMD", seen, left, whys, numbers=numbers)


def _left(
    maker: Maker,
    seen: Sequence[GpuSeen],
    left: Visible,
    whys: list[str],
    *,
    numbers: Mapping[str, int],
) -> Iterator[Usable]:
    """The cards that the environment leaves and that tell what they are; why for the others."""
    whys += [left.why_not_more] if left.why_not_more else []
    by_name = {(one.uuid, one.pci_bus_id): one for one in seen}
    for card in left.cards:
        one = by_name[card.uuid, card.pci_bus_id]
        match one.gpu:
            case Missing(why=why):
                whys.append(why)
            case gpu:
                yield Usable(maker=maker, gpu=gpu, seen=one, rocm_number=numbers.get(one.pci_bus_id, -1))


def _is_known_to_rocm(seen: GpuSeen) -> bool:
    return "compute_capability" not in seen.untold


def _card(seen: GpuSeen) -> Card:
    match seen.gpu:
        case facts.Gpu() as gpu:
            # The slices of a card are one kind to CUDA's order: it counts whole cards.
            make = f"{gpu.gpu_name} {gpu.pci_device_id}"
        case Missing(why=why):
            make = why
    return Card(
        uuid=seen.uuid,
        card_uuid=seen.card_uuid,
        instance=seen.instance,
        pci_bus_id=seen.pci_bus_id,
        make=make,
    )
