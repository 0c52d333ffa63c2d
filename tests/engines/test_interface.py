"""What every engine shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.interface import bare_environment, tokenizing_s


def test_tokenizing_a_prompt_may_take_minutes_and_never_half_an_hour() -> None:
    assert tokenizing_s("") == 60.0
    assert tokenizing_s("a" * 4_000_000) == 100.0


def test_a_process_of_llama_cpp_inherits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bare_environment(Path("/home"))
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert bare_environment(Path("/home")) == before
    assert (before["HOME"], before["XDG_CONFIG_HOME"], before["LC_ALL"]) == ("/home", "/home", "C")
