from qlock.core.gates.interface import GATE_VERDICTS, Gate, PairsSeen, gate, undecided
from qlock.core.rules import MemoryAtMost, NonInferior, SpeedAtLeast
from qlock.core.stats import CannotTell

UNKNOWN = CannotTell(why="it is not")
SEEN = PairsSeen(pairs=1, errors_a=0, errors_b=0, difference=UNKNOWN, needed=UNKNOWN, noise_share=UNKNOWN)


def test_what_was_asked_is_safe_to_show() -> None:
    rule = NonInferior(suite="orders", slice="north\x1b[2K", margin_share=0.1)
    assert gate(rule, "pass", "", SEEN) == Gate(
        asked=NonInferior(suite="orders", slice="north\\x1b[2K", margin_share=0.1),
        verdict="pass",
        why="",
        seen=SEEN,
    )


def test_a_rule_without_words_of_a_file_stays_as_it_is() -> None:
    for rule in (SpeedAtLeast(suite="orders", at_least_ratio=0.9), MemoryAtMost(at_most_bytes=1)):
        assert gate(rule, "pass", "", SEEN).asked == rule


def test_without_anything_to_judge_by_it_is_undecided_with_the_reason() -> None:
    rule = NonInferior(suite="orders")
    assert undecided(rule, "there is nothing") == Gate(
        asked=rule, verdict="undecided", why="there is nothing", seen=CannotTell(why="there is nothing")
    )


def test_there_are_three_verdicts() -> None:
    assert GATE_VERDICTS == ("pass", "fail", "undecided")
