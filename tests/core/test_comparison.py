from typing import Literal

import msgspec
import pytest

from qlock.core.canon import from_json, json_bytes
from qlock.core.compare import compare
from qlock.core.comparison import Comparison, exit_code_of
from qlock.core.gates import Gate
from qlock.core.rules import NonInferior
from qlock.core.stats import CannotTell
from qlock.errors import ExitCode
from tests.fakes.comparisons import a_reading, a_side, a_sitting

replace = msgspec.structs.replace


def a_comparison(state: Literal["valid", "invalid", "incomplete"], *verdicts: str) -> Comparison:
    gates = [
        Gate(
            asked=NonInferior(suite="orders"),
            verdict=verdict,  # type: ignore[arg-type]  # a literal, spelt in the test
            why="",
            seen=CannotTell(why=""),
        )
        for verdict in verdicts
    ]
    return replace(compare(a_side("r"), a_side("r")), state=state, gate=tuple(gates))


@pytest.mark.parametrize(
    "comparisons, code",
    [
        ([], ExitCode.YES),
        ([a_comparison("valid")], ExitCode.YES),
        ([a_comparison("valid", "pass", "pass")], ExitCode.YES),
        ([a_comparison("valid", "pass", "fail")], ExitCode.NO),
        ([a_comparison("valid", "undecided")], ExitCode.NO),
        ([a_comparison("incomplete", "undecided")], ExitCode.INCOMPLETE),
        ([a_comparison("valid", "fail"), a_comparison("incomplete")], ExitCode.INCOMPLETE),
        ([a_comparison("invalid", "undecided")], ExitCode.INVALID),
        ([a_comparison("valid"), a_comparison("incomplete"), a_comparison("invalid")], ExitCode.INVALID),
    ],
)
def test_the_exit_code_is_that_of_the_worst(comparisons: list[Comparison], code: ExitCode) -> None:
    assert exit_code_of(tuple(comparisons)) == code


def test_a_comparison_reads_back_from_its_json() -> None:
    a = a_side("r" * 20 + "wuxceb.h")
    b = a_side("r" * 10 + "w" * 10 + "rrxcebrr", model="Q4_K_M")
    text = (a_reading([100.0 + index for index in range(12)]),)
    for one, other in (
        (a, b),
        (replace(a, sittings={**a.sittings, "wikitext": text}), replace(b, sittings={"wikitext": text})),
        (a_side("rrr"), a_side("rrr")),
    ):
        found = compare(one, other, again_a=replace(one, sittings={"orders": (a_sitting("r" * 28),)}))
        assert from_json(json_bytes(found), Comparison, name="report") == found
