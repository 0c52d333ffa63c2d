"""Findings that stop what is going on, where a value cannot travel: inside the preparation of a point.

Does not live here: the findings themselves (``core.verify``).
"""

from __future__ import annotations

from collections.abc import Iterable

from qlock.core.verify import Finding, refuses
from qlock.errors import RefusedError


class FindingsError(RefusedError):
    """All findings of one look that must not be passed over."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        why = f": {first.why}" if first.why else ""
        super().__init__(
            f"{first.where}: got `{first.found}`, expected `{first.expected}`{why}{more}", hint=first.remedy
        )
        self.findings = findings


def is_allowed(finding: Finding, allow: tuple[str, ...]) -> bool:
    """Whether ``--allow`` names the fact, or a table that it stands in."""
    return any(finding.where == fact or finding.where.startswith(f"{fact}.") for fact in allow)


def refuse(findings: Iterable[Finding], *, allow: tuple[str, ...] = ()) -> None:
    """Stop when any finding can change output and is not allowed.

    Raises:
        FindingsError: With every such finding.
    """
    stopping = tuple(finding for finding in findings if refuses(finding) and not is_allowed(finding, allow))
    if stopping:
        raise FindingsError(stopping)
