import msgspec
import pytest

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.core.gates import DistanceSeen, Gate, MemorySeen, PairsSeen, SpeedSeen
from qlock.core.rules import (
    AgreementShare,
    EndingShare,
    GateSpec,
    Kld,
    MemoryAtMost,
    NoMoreErrors,
    NonInferior,
    ShareSpec,
    SpeedAtLeast,
)
from qlock.core.speed import Speed
from qlock.core.stats import CannotTell, Interval
from qlock.reports.interface.gates import asks, gates, named, reason, seen
from tests.fakes.comparisons import a_plain_lock, a_side, a_sitting, varying

replace = msgspec.structs.replace


def judged(b: str, *rules: ShareSpec, a: str = "") -> Comparison:
    lock = a_plain_lock(gate=rules)
    return compare(a_side(a or "r" * len(b), lock=lock), a_side(b, model="Q4_K_M", lock=lock))


def test_every_gate_has_what_it_asks_what_was_seen_and_its_answer() -> None:
    part = gates(
        judged(
            "r" * 58 + "ww",
            NonInferior(suite="orders", margin_share=0.05),
            NoMoreErrors(suite="orders", slice="north"),
        )
    )
    assert part.columns == ("gate", "of", "passes with", "seen", "noise", "verdict")
    assert part.rows == (
        (
            "non-inferior",
            "orders",
            "B - A above -5.0 points",
            "-3.3 points (-11.4 to +3.2 points), 60 pairs",
            "-",
            "undecided",
        ),
        (
            "no-more-errors",
            "orders north",
            "errors of A at most",
            "1 error against 0, 30 pairs",
            "-",
            "fail",
        ),
    )
    assert part.remarks == (
        (
            "non-inferior of orders: the interval holds the margin; "
            "if what was seen is true, 657 pairs (597 more) would decide: pass"
        ),
    )
    assert gates(compare(a_side("r"), a_side("r"))).rows == ()


def test_noise_stands_beside_the_gate() -> None:
    lock = varying(a_plain_lock(gate=(NonInferior(suite="orders", margin_share=0.2),)))
    a = a_side("r" * 40, lock=lock)
    again = replace(a, sittings={"orders": (a_sitting("r" * 39 + "w"),)})
    assert gates(compare(a, a_side("r" * 40, model="Q4_K_M", lock=lock), again_a=again)).rows[0][4] == "2.5 %"


@pytest.mark.parametrize(
    "rule, words",
    [
        (NonInferior(suite="s"), "B - A above 0.0 points"),
        (NonInferior(suite="s", margin_share=0.005), "B - A above -0.5 points"),
        (NoMoreErrors(suite="s"), "errors of A at most"),
        (NoMoreErrors(suite="s", margin_share=0.01), "errors of A, and 1.0 % of the pairs more, at most"),
        (EndingShare(suite="s", margin_share=0.05), "finished: B - A above -5.0 points"),
        (AgreementShare(suite="s", margin_share=0.05), "equal: above 95.0 %"),
        (SpeedAtLeast(suite="s", at_least_ratio=0.9), "x0.9 of A's speed or more"),
        (MemoryAtMost(at_most_bytes=6_000_000_000), "6.0 GB or less"),
    ],
)
def test_what_passes_a_gate_in_words(rule: GateSpec, words: str) -> None:
    assert asks(rule) == words


@pytest.mark.parametrize(
    "rule, b, words",
    [
        (NonInferior(suite="orders"), "r" * 38 + "ww", "-5.0 points (-16.5 to +4.5 points), 40 pairs"),
        (NonInferior(suite="orders"), "h", "-50.0 points (-94.5 to +69.0 points), 1 pair"),
        (NoMoreErrors(suite="orders"), "r" * 38 + "ww", "2 errors against 0, 40 pairs"),
        (
            EndingShare(suite="orders"),
            "r" * 38 + "bb",
            "-5.0 points (-16.5 to +4.5 points); 2 unfinished against 0, 40 pairs",
        ),
        (AgreementShare(suite="orders"), "r" * 38 + "ww", "38 equal of 40 pairs (83.5 % to 98.6 %)"),
        (NonInferior(suite="other"), "r", "-"),
    ],
)
def test_what_was_seen_in_words(rule: ShareSpec, b: str, words: str) -> None:
    (gate,) = judged(b, rule).gate
    assert seen(gate) == words


def test_a_difference_that_could_not_be_told_has_no_interval() -> None:
    (gate,) = judged("r" * 40, NonInferior(suite="orders")).gate
    assert isinstance(gate.seen, PairsSeen)
    unknown = replace(gate.seen, difference=CannotTell(why="there are no pairs"))
    assert seen(replace(gate, seen=unknown)) == "no interval, 40 pairs"


def test_speeds_have_their_ratio_and_memory_says_of_what() -> None:
    unknown = CannotTell(why="it was not measured")
    ratio = Interval(point=0.95, low=0.9, high=1.0, level=0.95, n=20, clusters=20, method="t")
    speeds = SpeedSeen(
        a=Speed(tokens=2_000, answering_s=16.0),
        b=Speed(tokens=2_000, answering_s=17.0),
        ratio=ratio,
        noise_ratio=1.02,
    )
    rule = SpeedAtLeast(suite="orders", at_least_ratio=0.9)
    gate = Gate(asked=rule, verdict="pass", why="", seen=speeds)
    assert seen(gate) == "x0.950 (x0.900 to x1.000); 117.6 tokens/s against 125"
    found = replace(judged("r"), gate=(gate,))
    assert gates(found).rows[0][3:] == (seen(gate), "x1.020", "pass")
    open_ = replace(gate, verdict="undecided", why="few", seen=replace(speeds, b=unknown, ratio=unknown))
    assert (seen(open_), reason(open_)) == ("unknown tokens/s against 125", "few")
    memory = MemorySeen(of="cpu", a_bytes=270_900_000, b_bytes=88_200_000)
    of_memory = Gate(asked=MemoryAtMost(at_most_bytes=100_000_000), verdict="pass", why="", seen=memory)
    assert seen(of_memory) == "88.2 MB; A 270.9 MB"
    assert named(of_memory) == "memory-at-most of the point"
    cards = replace(of_memory, seen=replace(memory, of="gpu", a_bytes=unknown))
    assert seen(cards) == "88.2 MB on the cards; A unknown"


def test_a_divergence_that_is_a_lower_bound_says_what_may_be_missing() -> None:
    interval = Interval(point=0.02, low=0.01, high=0.03, level=0.95, n=40, clusters=40, method="t")
    found = DistanceSeen(
        items=40, kld_nats=0.02, interval=interval, noise_nats=CannotTell(why="not run twice")
    )
    gate = Gate(asked=Kld(suite="distance", margin_nats=0.1), verdict="pass", why="", seen=found)
    assert seen(gate) == "0.020000 nats (0.010000 to 0.030000), 40 items"
    assert seen(replace(gate, seen=replace(found, kld_slack_nats=0.05))) == (
        "at least 0.020000 nats (0.010000 to 0.030000), 0.050000 more at most, 40 items"
    )


def test_the_reason_of_a_verdict_is_what_was_seen_and_otherwise_why_there_is_none() -> None:
    strict, open_ = judged(
        "r" * 58 + "ww", NoMoreErrors(suite="orders"), NonInferior(suite="orders", margin_share=0.05)
    ).gate
    assert (named(strict), reason(strict)) == ("no-more-errors of orders", "2 errors against 0, 60 pairs")
    assert (named(open_), reason(open_)) == ("non-inferior of orders", "the interval holds the margin")
