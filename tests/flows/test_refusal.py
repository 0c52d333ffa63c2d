from __future__ import annotations

from typing import Any

import pytest

from qlock.core.escape import for_message
from qlock.core.verify import Finding, Part, Rule
from qlock.errors import ExitCode, UsageError
from qlock.flows.refusal import FindingsError, is_allowed, only_absent, refuse, refuse_unknown
from tests.fakes.documents import a_lock


def a_finding(where: str = "device.cpu.cpu_model", **changes: Any) -> Finding:
    fields: dict[str, Any] = {"rule": "device", "expected": "a", "found": "b", "effect": "output"}
    return Finding(where=where, **(fields | changes))


def test_nothing_found_refuses_nothing() -> None:
    refuse([])
    refuse([a_finding(effect="timing"), a_finding(effect="note")])


def test_the_first_finding_is_told_with_how_many_more_there_are() -> None:
    findings = (a_finding(effect="note"), a_finding(why="it was changed"), a_finding("device.cpu.cpu_family"))
    with pytest.raises(FindingsError) as caught:
        refuse(findings)
    assert (str(caught.value), caught.value.hint, caught.value.exit_code) == (
        "device.cpu.cpu_model: got `b`, expected `a`: it was changed (and 1 more)",
        "run on the locked device, or resolve for this one",
        ExitCode.REFUSED,
    )
    assert caught.value.findings == findings[1:]


def test_what_is_allowed_does_not_refuse() -> None:
    refuse([a_finding()], allow=("device.cpu",))
    with pytest.raises(FindingsError) as caught:
        refuse([a_finding()], allow=("device.cpu.cpu_family",))
    assert str(caught.value) == "device.cpu.cpu_model: got `b`, expected `a`"


@pytest.mark.parametrize(
    "fact, allowed",
    [
        ("device.cpu.cpu_model", True),
        ("device.cpu", True),
        ("device", True),
        ("device.cpu.cpu", False),
        ("devic", False),
        ("device.cpu.cpu_model.x", False),
        ("", False),
    ],
)
def test_a_fact_is_allowed_by_its_name_or_by_that_of_its_table(fact: str, allowed: bool) -> None:  # noqa: FBT001 - a table of cases
    assert is_allowed(a_finding(), (fact,)) == allowed


def test_a_file_is_allowed_when_all_that_changed_of_it_is() -> None:
    parts = tuple(Part(name=name, expected="a", found="b") for name in ("sha256", "blake3"))
    changed = a_finding("model.A.file.a.gguf", parts=parts)
    sha256, blake3 = changed.places
    assert is_allowed(changed, (blake3, sha256))
    assert is_allowed(changed, ("model.A.file.a.gguf",))
    assert is_allowed(changed, ("model",))
    assert not is_allowed(changed, (blake3,))
    with pytest.raises(FindingsError) as caught:
        refuse([changed])
    assert str(caught.value) == "model.A.file.a.gguf: sha256 a → b, blake3 a → b"


def test_what_no_finding_can_name_is_not_allowed() -> None:
    lock = a_lock()
    fact = f"device.{lock.device[0].name}.cpu_model"
    refuse_unknown(lock, ("model", fact))
    for wrong, hint in (
        (f"{fact}s", f"did you mean `{fact}`?"),
        ("\x1b", "take the name from the finding"),
    ):
        with pytest.raises(UsageError) as caught:
            refuse_unknown(lock, (fact, wrong))
        assert str(caught.value) == (
            f"got --allow `{for_message(wrong)}`, expected a fact that a finding about this lock can name"
        )
        assert caught.value.hint == hint


@pytest.mark.parametrize(
    "rule, found, expected",
    [
        ("model-files", "missing", True),
        ("suite-files", "missing", True),
        ("model-files", "blake3:00", False),
        ("device", "missing", False),
    ],
)
def test_files_that_are_not_here_are_absent_and_all_else_is_refused(
    rule: Rule, found: str, *, expected: bool
) -> None:
    absent = a_finding(rule="model-files", found="missing")
    assert only_absent((absent, a_finding(rule=rule, found=found))) is expected
