"""Which of AMD's cards the environment leaves to a process, worked out the way ROCm does.

Rules, from ROCm's documentation ("GPU isolation techniques"):

- ``ROCR_VISIBLE_DEVICES`` counts the cards that the kernel's KFD knows, in its order, or names them by UUID;
- ``HIP_VISIBLE_DEVICES``, and where it is not set ``CUDA_VISIBLE_DEVICES``, counts what is left, or names it;
- unset: every card; empty: none; a list ends at the first entry that names no card, or one that was named.

Vulkan knows none of them. Does not live here: which cards there are (``world.amd``), and which of them a lock wants
(``flows.device``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from qlock.core.escape import for_message
from qlock.core.visible import VARIABLE, Card, Visible
from qlock.errors import InputError

ROCR = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
_MOST_CHARACTERS = 64 << 10
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


def visible_amd(cards: Sequence[Card], known: int, environment: Mapping[str, str]) -> Visible:
    """The cards that a process with this environment may use.

    Args:
        cards: Those that KFD knows, in its order, then the others.
        known: How many KFD knows; to ROCm there are no more.
        environment: Environment variables.

    Raises:
        InputError: A variable is absurdly long.
    """
    hip = HIP if HIP in environment else VARIABLE
    set_here = [name for name in (ROCR, hip) if name in environment]
    left = list(cards) if not set_here else list(cards[:known])
    for name in set_here:
        left = _named(name, environment[name], left)
    complete = len(left) == len(cards)
    said = " and ".join(f"{name} is `{for_message(environment[name])}`" for name in set_here)
    return Visible(cards=tuple(left), why_not_more="" if complete else said)


def _named(name: str, text: str, cards: list[Card]) -> list[Card]:
    """The cards that a list names, in its order."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(
            f"got `{name}` of {len(text)} characters, expected at most {_MOST_CHARACTERS}",
            hint=f"unset {name}",
        )
    found: list[Card] = []
    for entry in (entry.strip() for entry in text.split(",")):
        if _NUMBER.fullmatch(entry):
            meant = cards[int(entry) : int(entry) + 1]
        else:
            meant = [card for card in cards if card.uuid and card.uuid.lower() == entry.lower()]
        if len(meant) != 1 or meant[0] in found:
            break
        found += meant
    return found
