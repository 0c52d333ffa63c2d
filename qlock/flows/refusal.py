"""Findings that stop what is going on, where a value cannot travel: inside the preparation of a point.

Does not live here: the findings themselves (``core.verify``).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from qlock.core.escape import for_message, for_shell
from qlock.core.fact_names import fact_names, is_fact
from qlock.core.lock import Lock
from qlock.core.units import count_text
from qlock.core.verify import Finding, refuses
from qlock.core.words import did_you_mean
from qlock.errors import RefusedError, UsageError
from qlock.flows.layout import lock_label


class FindingsError(RefusedError):
    """All findings of one look that must not be passed over."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        why = f": {first.why}" if first.why else ""
        what = first.change or f"got `{first.found}`, expected `{first.expected}`"
        super().__init__(f"{first.where}: {what}{why}{more}", hint=first.remedy)
        self.findings = findings


def is_allowed(finding: Finding, allow: tuple[str, ...]) -> bool:
    """Whether ``--allow`` names the fact, or a table that it stands in; of a file, all that changed."""
    return all(
        any(place == fact or place.startswith(f"{fact}.") for fact in allow) for place in finding.places
    )


def refuse_unknown(lock: Lock, allow: tuple[str, ...]) -> None:
    """Stop when ``--allow`` names what no finding about this lock can name: it would allow nothing.

    Raises:
        UsageError: With the nearest name that is known.
    """
    for fact in allow:
        if not is_fact(lock, fact):
            raise UsageError(
                f"got --allow `{for_message(fact)}`, expected a fact that a finding about this lock can name",
                hint=did_you_mean(fact, sorted(fact_names(lock))) or "take the name from the finding",
            )


def only_absent(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing is wrong but that files of models or suites are not here."""
    return all(
        finding.found == "missing" and finding.rule in ("model-files", "suite-files") for finding in findings
    )


def refuse(findings: Iterable[Finding], *, allow: tuple[str, ...] = ()) -> None:
    """Stop when any finding can change output and is not allowed.

    Raises:
        FindingsError: With every such finding.
    """
    stopping = tuple(finding for finding in findings if refuses(finding) and not is_allowed(finding, allow))
    if stopping:
        raise FindingsError(stopping)


def refuse_missing(lock: Lock, lock_path: Path, *, renew: str = "") -> None:
    """Stop when a pin is still missing; ``renew`` is the lock's spec, where that is known.

    Raises:
        RefusedError: Naming the pins and the command.
    """
    open_pins = [entry for entry in lock.missing if entry.until != "never"]
    if not open_pins:
        return
    command = (
        f"`qlock resolve {for_shell(renew)}`"
        if renew
        else f"`qlock resolve` on the spec of `{lock_path.name}`"
    )
    if any(entry.until == "fetch" for entry in open_pins):
        command = f"`qlock fetch {for_shell(lock_label(lock_path))}`, then {command}"
    raise RefusedError(
        f"the lock still misses {count_text(len(open_pins), 'pin')}, first `{open_pins[0].pin}`: {open_pins[0].why}",
        hint=f"run {command}, on the machine that shall run it",
    )
