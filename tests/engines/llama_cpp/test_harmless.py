"""The table of options that need not be passed."""

from __future__ import annotations

from qlock.engines.llama_cpp.harmless import HARMLESS, NAMES


def test_each_option_stands_under_one_reason() -> None:
    listed = [name for names in HARMLESS.values() for name in names]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == NAMES


def test_every_name_is_a_long_one() -> None:
    assert [name for name in NAMES if not name.startswith("--") or " " in name] == []
