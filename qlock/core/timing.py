"""What can change the speed of answers and nothing else, held side by side.

Does not live here: which facts those are (their own ``effect``), and what follows from it (``core.gates``).
"""

from __future__ import annotations

from collections.abc import Iterator

from qlock.core.base import Base
from qlock.core.effects import changes
from qlock.core.verify import side_shown


def timing_changes(path: str, a: Base, b: Base) -> Iterator[str]:
    """Each fact of class ``timing`` that differs between two structs of a kind: ``device.cores: `2` and `4```."""
    for change in changes(a, b):
        if change.effect == "timing":
            mine, theirs = (
                side_shown(one, other)
                for one, other in ((change.before, change.after), (change.after, change.before))
            )
            yield f"{path}.{change.path}: `{mine}` and `{theirs}`"
