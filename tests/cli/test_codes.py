"""Every exit code has its words."""

from __future__ import annotations

from qlock.cli.codes import MEANINGS, SPECS, help_text
from qlock.errors import ExitCode


def test_every_code_has_one_meaning_on_one_line() -> None:
    assert list(MEANINGS) == list(ExitCode)
    assert len(set(MEANINGS.values())) == len(ExitCode)
    assert [meaning for meaning in MEANINGS.values() if "\n" in meaning or meaning.endswith(".")] == []


def test_the_help_has_a_row_for_each() -> None:
    lines = help_text().split("\n")
    assert lines[:5] == [SPECS, "", "\b", "Exit codes:", "    0  yes"]
    assert lines[-1] == "  143  ended by SIGTERM, SIGHUP or SIGUSR1; what was measured is kept"
    assert len(lines) == 4 + len(ExitCode)
