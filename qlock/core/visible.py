"""Which cards ``CUDA_VISIBLE_DEVICES`` leaves to a process, worked out the way CUDA does, and by UUID.

Rules, from NVIDIA's CUDA Programming Guide ("CUDA Environment Variables") and its MIG User Guide:

- unset: every card; empty: none;
- an entry is a number, a UUID or its unique beginning, ``MIG-UUID``, or ``MIG-GPU-UUID/GI/CI`` of older drivers;
- the list ends at the first entry that names no card (so ``-1`` alone means none); a card named twice means none;
- a card in MIG mode that is named as a whole stands for its first slice.

A number counts the cards by PCI address under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. Otherwise CUDA puts the fastest card
first, which nothing but CUDA knows: then numbers mean something only where all cards are alike or all are named.

Does not live here: which cards there are (``world.nvml``), and which of them a lock wants (``flows.device``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.errors import InputError

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_MOST_CHARACTERS = 64 << 10
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)
_OLD_SLICE = re.compile(r"MIG-(GPU-[0-9A-F-]+)/([0-9]+/[0-9]+)", re.ASCII | re.IGNORECASE)
_BUS_ID = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.ASCII | re.IGNORECASE
)


class Card(Base, frozen=True, kw_only=True):
    """A card, or a slice of one, as far as it can be named."""

    uuid: str
    card_uuid: str
    """Of the whole card; as ``uuid`` where it is no slice."""
    instance: str
    """``GI/CI`` of a slice; empty for a whole card."""
    pci_bus_id: str
    make: str
    """Whatever is the same for two cards of one kind."""


class Visible(Base, frozen=True, kw_only=True):
    """What a process may use."""

    cards: tuple[Card, ...]
    """In CUDA's order."""
    why_not_more: str
    """What the variable says, where it leaves cards out; empty otherwise."""


def visible(cards: Sequence[Card], environment: Mapping[str, str]) -> Visible:
    """The cards that a process with this environment may use.

    Args:
        cards: Every card that the driver shows, in any order.
        environment: Environment variables.

    Raises:
        InputError: The variable is absurdly long, or has numbers where they mean nothing.
    """
    places = _places(cards)
    text = environment.get(VARIABLE)
    if text is None:
        return Visible(cards=tuple(card for place in places for card in place), why_not_more="")
    if len(text) > _MOST_CHARACTERS:
        raise InputError(
            f"got `{VARIABLE}` of {len(text)} characters, expected at most {_MOST_CHARACTERS}",
            hint=f"unset {VARIABLE}",
        )
    entries = [entry.strip() for entry in text.split(",")]
    found: list[Card] = []
    for entry in entries:
        card = _named(entry, places)
        if card is None:
            break
        if card in found:
            found = []
            break
        found.append(card)
    if environment.get(ORDER) != "PCI_BUS_ID":
        _check_numbers(entries[: len(found)], places)
    complete = {card.uuid for card in found} == {card.uuid for card in cards}
    return Visible(
        cards=tuple(found), why_not_more="" if complete else f"{VARIABLE} is `{for_message(text)}`"
    )


def _places(cards: Sequence[Card]) -> list[list[Card]]:
    """The cards by PCI address, each with its slices where it has any."""
    places: dict[tuple[int, ...], list[Card]] = {}
    for card in cards:
        places.setdefault(bus_address(card.pci_bus_id), []).append(card)
    return [places[address] for address in sorted(places)]


def _named(entry: str, places: list[list[Card]]) -> Card | None:
    """The card that an entry of the list names."""
    if _NUMBER.fullmatch(entry):
        number = int(entry)
        return places[number][0] if number < len(places) else None
    wanted = entry.lower()
    old = _OLD_SLICE.fullmatch(entry)
    if old:
        named = [
            card
            for card in _each(places)
            if card.instance == old[2] and card.card_uuid.lower() == old[1].lower()
        ]
        return named[0] if named else None
    if wanted.startswith("mig-"):
        named = [card for card in _each(places) if card.instance and card.uuid.lower().startswith(wanted)]
    elif wanted.startswith("gpu-"):
        named = [place[0] for place in places if place[0].card_uuid.lower().startswith(wanted)]
    else:
        return None
    return named[0] if len(named) == 1 else None


def _each(places: list[list[Card]]) -> Iterator[Card]:
    for place in places:
        yield from place


def _check_numbers(entries: list[str], places: list[list[Card]]) -> None:
    """Refuse numbers whose meaning only CUDA knows."""
    numbers = [entry for entry in entries if _NUMBER.fullmatch(entry)]
    makes = {card.make for place in places for card in place}
    if numbers and len(makes) > 1 and len(set(entries)) < len(places):
        raise InputError(
            f"got the number `{numbers[0]}` in `{VARIABLE}` while the cards differ, and CUDA counts them by speed",
            hint=f"set {ORDER}=PCI_BUS_ID, or name cards by UUID (`nvidia-smi -L`)",
        )


def bus_address(text: str) -> tuple[int, ...]:
    """Domain, bus, device and function of a PCI address, however it is written: ``00000000:18:00.0``, ``18:00.0``.

    Raises:
        InputError: It is none.
    """
    found = _BUS_ID.fullmatch(text.strip())
    if found is None:
        raise InputError(f"got `{for_message(text)}`, expected a PCI address such as `0000:18:00.0`")
    domain, bus, device, function = (int(part or "0", 16) for part in found.groups())
    return domain, bus, device, function


def bus_text(text: str) -> str:
    """A PCI address in one spelling, ``0000:18:00.0``, however it is written.

    Raises:
        InputError: It is none.
    """
    domain, bus, device, function = bus_address(text)
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
