"""The device of a spec or a lock as it is here: the CPU, and the cards that the engine is given.

Lives here: which of the cards that can be used (``flows.cards``) a spec or a lock means, and their facts. The engine is
told its cards by UUID wherever they have one, so the cards that are locked are the cards that it can see; which of them
it uses is proved by PCI address (``flows.obedience``). Does not live here: comparing with a lock (``core.verify``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.effects import what_changes_output
from qlock.core.escape import for_message
from qlock.core.lock import MissingPin
from qlock.core.spec import DeviceSpec, SettingSpec, Spec
from qlock.core.visible import bus_text
from qlock.errors import AbsentError, InputError
from qlock.flows.cards import Usable, usable, variables
from qlock.flows.proving import Opener
from qlock.world.interface import World

_LONGEST_NAME = 70
AMD_CARDS = "1002:"
"""What AMD's PCI ids begin with."""


class Here(Base, frozen=True, kw_only=True):
    """A device as it is here."""

    device: facts.Device
    gpu_uuid: tuple[str, ...]
    """Of the cards, in the device's order, empty where a card has none; belongs to a run, never to a lock."""
    variables: dict[str, str]
    """What leaves an engine's processes these cards alone."""
    pci_bus_id: tuple[str, ...]
    """Where those cards sit: ``0000:18:00.0``."""
    missing: tuple[MissingPin, ...]
    """Facts that a card does not tell, with the reason."""


def asked_device(world: World, spec: Spec) -> Here:
    """The device that a spec asks for.

    Raises:
        InputError: Device and settings contradict each other, or it is not clear which card is meant.
        AbsentError: The spec asks for a GPU, and none or not enough can be used.
    """
    _check_settings(spec)
    if spec.device.kind == "cpu":
        return Here(device=world.host.device(), gpu_uuid=(), variables={}, pci_bus_id=(), missing=())
    try:
        cards, why_not_more = usable(world)
        chosen = _asked(cards, spec.device, why_not_more)
    except (AbsentError, InputError) as error:
        raise error.within("device") from None
    return _here(world, _name(chosen), chosen)


def locked_device(world: World, locked: facts.Device) -> Here:
    """The device here that is most like a locked one; ``core.verify`` says what is different about it.

    Raises:
        InputError: ``CUDA_VISIBLE_DEVICES`` means nothing.
        AbsentError: The lock has a GPU, and none can be used.
    """
    if locked.kind == "cpu":
        return Here(
            device=world.host.device(locked.name), gpu_uuid=(), variables={}, pci_bus_id=(), missing=()
        )
    cards, _ = usable(world)
    return _here(world, locked.name, tuple(_alike(locked.gpu, cards)))


def opener(open_engine: Opener, variables: Mapping[str, str]) -> Opener:
    """The same opener, except that the engine sees certain cards alone."""
    if not variables:
        return open_engine
    return functools.partial(open_engine, variables=dict(variables))


def _check_settings(spec: Spec) -> None:
    """Refuse layers on a card that is not asked for, and a card that no setting uses."""
    offloading = [setting for setting in spec.setting if setting.gpu_layers]
    if spec.device.kind == "cpu":
        for setting in offloading:
            raise InputError(
                f'got `{setting.gpu_layers}` on the device kind "cpu", expected `0`',
                hint='set `[device] kind = "gpu"`',
            ).within(f"setting.{setting.name}.gpu_layers")
        return
    if not offloading:
        raise InputError(
            "the spec asks for a GPU, and no setting puts a layer on it", hint="set `gpu_layers` in a setting"
        ).within("device.kind")
    count = spec.device.count
    for setting in offloading:
        if setting.main_gpu >= count:
            raise InputError(f"got `{setting.main_gpu}`, expected less than device.count `{count}`").within(
                f"setting.{setting.name}.main_gpu"
            )
    unused = set(range(count)).difference(*(_used(setting, count) for setting in offloading))
    if unused:
        raise InputError(
            f"got `{count}`, and no setting uses the card `{min(unused)}`",
            hint='set `split_mode = "layer"` to spread a model over all of them',
        ).within("device.count")


def _used(setting: SettingSpec, count: int) -> set[int]:
    return set(range(count)) if setting.split_mode == "layer" else {setting.main_gpu}


def full_name(gpu: facts.Gpu) -> str:
    """A card's name as a spec gives it; a slice has its profile in it: ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``.

    A card of AMD's is always whole: of what is cut into partitions none can be used.
    """
    is_slice = gpu.mig_profile and not gpu.pci_device_id.startswith(AMD_CARDS)
    return f"{gpu.gpu_name} MIG {gpu.mig_profile}" if is_slice else gpu.gpu_name


def _asked(cards: tuple[Usable, ...], asked: DeviceSpec, why_not_more: str) -> tuple[Usable, ...]:
    """The cards that a spec asks for, of those that can be used."""
    left_out = f" ({why_not_more})" if why_not_more else ""
    wanted = " ".join(asked.gpu_name.split())
    # A processor's own graphics is a card of AMD's too, and nobody means it who has one of NVIDIA's and names none.
    unnamed = [card for card in cards if card.maker == cards[0].maker]
    fitting = [card for card in cards if full_name(card.gpu).lower() == wanted.lower()] if wanted else unnamed
    names = ", ".join(f"`{for_message(name)}`" for name in dict.fromkeys(full_name(c.gpu) for c in cards))
    if not fitting:
        raise AbsentError(f"got {names}{left_out}, expected `{for_message(wanted)}`").within("gpu_name")
    if len(fitting) < asked.count:
        raise AbsentError(
            f"got `{len(fitting)}` of {names}{left_out}, expected `{asked.count}`", hint="set `device.count`"
        ).within("count")
    kinds = {_kind(card.gpu) for card in fitting}
    if len(kinds) > 1 and len(fitting) > asked.count:
        raise InputError(
            f"got cards of several kinds: {names}, expected to be told which",
            hint="set `device.gpu_name`, or CUDA_VISIBLE_DEVICES (AMD: ROCR_VISIBLE_DEVICES) to UUIDs",
        ).within("gpu_name")
    chosen = tuple(fitting[: asked.count])
    if len(chosen) > 1 and any(full_name(card.gpu) != card.gpu.gpu_name for card in chosen):
        raise AbsentError("got MIG slices, of which CUDA uses one in a process, expected `1`").within("count")
    return chosen


def _kind(gpu: facts.Gpu) -> tuple[object, ...]:
    return (gpu.gpu_name, gpu.pci_device_id, gpu.mig_profile, str(gpu.memory_bytes))


def _alike(locked: Sequence[facts.Gpu], cards: Sequence[Usable]) -> Iterator[Usable]:
    """For each locked card the one here that is most like it, each once; fewer where there are not so many."""
    left = list(cards)
    for wanted in locked:
        if not left:
            return
        best = max(left, key=lambda card: _likeness(wanted, card.gpu))
        left.remove(best)
        yield best


def _likeness(wanted: facts.Gpu, found: facts.Gpu) -> tuple[bool, ...]:
    """Larger for a card that is more like the wanted one; ``max`` takes the first of equals."""
    return (
        what_changes_output(wanted) == what_changes_output(found),
        wanted == found,
        _kind(wanted) == _kind(found),
        full_name(wanted) == full_name(found),
    )


def _here(world: World, name: str, chosen: tuple[Usable, ...]) -> Here:
    device = msgspec.structs.replace(
        world.host.device(name),
        kind="gpu",
        driver_version=chosen[0].seen.driver_version,
        gpu=tuple(card.gpu for card in chosen),
    )
    missing = [
        MissingPin(
            pin=f"device.{name}.gpu.{index}.{field}",
            why=card.seen.untold.get(field, "the card does not tell it"),
            until="never",
        )
        for index, card in enumerate(chosen)
        for field in facts.Gpu.__struct_fields__
        if getattr(card.gpu, field) is UNSET
    ]
    return Here(
        device=device,
        gpu_uuid=tuple(card.seen.uuid for card in chosen),
        variables=variables(chosen),
        pci_bus_id=tuple(bus_text(card.seen.pci_bus_id) for card in chosen),
        missing=tuple(missing),
    )


def _name(chosen: tuple[Usable, ...]) -> str:
    """``gpu-nvidia-l4``, ``gpu-nvidia-l4-x2``; cards of two kinds are joined by ``+``."""
    names = dict.fromkeys(_slug(full_name(card.gpu)) for card in chosen)
    joined = "+".join(names)[:_LONGEST_NAME].rstrip("-.+")
    return f"gpu-{joined}" + (f"-x{len(chosen)}" if len(chosen) > 1 else "")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower(), flags=re.ASCII).strip("-.") or "unnamed"
