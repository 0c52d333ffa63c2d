"""Whether an engine that has loaded a point does as it was told.

Lives here: what an engine says of a loaded point beside its read-back, as findings: the cards that it uses, and whatever
it says otherwise than it was told. Does not live here: the read-back (``core.verify``), and what an engine computes
(``flows.proving``).
"""

from __future__ import annotations

from collections.abc import Sequence

from qlock.core import facts
from qlock.core.verify import Finding
from qlock.engines.interface import Deviation, Engine


def said_findings(
    engine: Engine, where: str, setting: facts.Setting, *, given: Sequence[str]
) -> list[Finding]:
    """What a loaded engine says of itself beside its read-back that is not as it was told.

    Args:
        engine: With the point loaded.
        where: The point.
        setting: Of the point.
        given: PCI addresses of the cards of the device.
    """
    return [
        *card_findings(where, setting, given=given, used=engine.devices()),
        *(_of(deviation, where) for deviation in engine.deviations()),
    ]


def card_findings(
    where: str, setting: facts.Setting, *, given: Sequence[str], used: Sequence[str]
) -> list[Finding]:
    """A finding when the engine has a point on other cards than those it was given, or on none.

    What an engine sees is limited by a variable that Vulkan, for one, does not know; so it is not taken for granted.

    Args:
        where: The point.
        setting: Of the point.
        given: PCI addresses of the cards of the device.
        used: Cards that the engine says it uses, as ``Engine.devices`` gives them.
    """
    if setting.gpu_layers == 0:
        expected: tuple[str, ...] = ()
    elif setting.split_mode == "layer":
        expected = tuple(given)
    else:
        expected = tuple(given[setting.main_gpu : setting.main_gpu + 1])
    if tuple(used) == expected:
        return []
    unnamed = [name for name in used if ":" not in name]
    return [
        Finding(
            rule="read-back",
            where=f"{where}.cards",
            expected=", ".join(expected) or "none",
            found=", ".join(used) or "none",
            effect="output",
            why=f"the engine tells no PCI address of `{unnamed[0]}`" if unnamed else "",
        )
    ]


def _of(deviation: Deviation, where: str) -> Finding:
    return Finding(
        rule="read-back",
        where=f"{where}.told.{deviation.name}",
        expected=deviation.expected,
        found=deviation.found,
        effect="output",
        why=deviation.why,
    )
