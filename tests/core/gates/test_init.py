import msgspec

from qlock.core.compare import compare
from qlock.core.gates import Gate, Ground, judge
from qlock.core.gates.distance import judge as judge_distance
from qlock.core.gates.memory import judge as judge_memory
from qlock.core.gates.shares import judge as judge_shares
from qlock.core.gates.speed import judge as judge_speed
from qlock.core.pairs import pair
from qlock.core.rules import AgreementShare, Kld, MemoryAtMost, NonInferior, SpeedAtLeast
from qlock.core.stats import CannotTell
from tests.fakes.comparisons import a_plain_lock, a_side, a_sitting, with_first
from tests.fakes.documents import a_digest

replace = msgspec.structs.replace
A, B = a_side("r" * 40), a_side("r" * 40, model="Q4_K_M")
PAIRING = pair(A.sittings["orders"], B.sittings["orders"])
GROUND = Ground(a=A, b=B, pairings={"orders": PAIRING})


def test_a_suite_that_is_not_on_both_sides_is_undecided() -> None:
    rule = NonInferior(suite="wikitext")
    why = "the suite `wikitext` is not on both sides"
    assert judge(rule, GROUND) == Gate(asked=rule, verdict="undecided", why=why, seen=CannotTell(why=why))


def test_each_rule_is_judged_by_its_own_kind() -> None:
    shares = NonInferior(suite="orders", margin_share=0.05)
    assert judge(shares, GROUND) == judge_shares(shares, PAIRING)
    speed = SpeedAtLeast(suite="orders", at_least_ratio=0.9)
    assert judge(speed, GROUND) == judge_speed(speed, A, B)
    kld = Kld(suite="distance", margin_nats=0.1)
    assert judge(kld, GROUND) == judge_distance(kld, B)
    memory = MemoryAtMost(at_most_bytes=1)
    assert judge(memory, GROUND) == judge_memory(memory, A, B)


def test_nothing_is_judged_where_it_is_withheld() -> None:
    open_ = replace(GROUND, withheld="it is open")
    for rule in (
        NonInferior(suite="orders"),
        SpeedAtLeast(suite="orders", at_least_ratio=0.9),
        MemoryAtMost(at_most_bytes=1),
    ):
        assert judge(rule, open_).why == "it is open"


def test_another_run_of_a_side_is_its_noise() -> None:
    again = replace(A, sittings={"orders": (a_sitting("r" * 30 + "w" * 10),)})
    rule = NonInferior(suite="orders", margin_share=0.05)
    found = judge(rule, replace(GROUND, again=((A, again),)))
    assert found.why == "undecidable: the margin lies under the noise of 25.0 %"


def test_answers_are_held_token_by_token_where_the_tokenizers_are_one() -> None:
    other = with_first(a_plain_lock(), model={"tokenizer_digest": a_digest("x")})
    sitting = B.sittings["orders"][0]
    rows = tuple(replace(row, replies=(replace(row.replies[0], tokens=(7, 7)),)) for row in sitting.rows)
    b = replace(B, sittings={"orders": (replace(sitting, rows=rows),)})
    rule = AgreementShare(suite="orders", margin_share=0.2)
    assert judge(rule, _ground(b)).why == "0 of 40 answers the same"
    assert judge(rule, _ground(replace(b, lock=other, point="F16@f16kv"))).why == "40 of 40 answers the same"


def _ground(b: object) -> Ground:
    return replace(GROUND, b=b, pairings={"orders": pair(A.sittings["orders"], b.sittings["orders"])})  # type: ignore[attr-defined]


def test_a_comparison_judges_the_gates_of_both_locks_by_all_of_this() -> None:
    rules = (MemoryAtMost(at_most_bytes=1), NonInferior(suite="orders", margin_share=0.05))
    lock = a_plain_lock(gate=rules)
    found = compare(replace(A, lock=lock), replace(B, lock=lock))
    assert found.gate == tuple(judge(rule, GROUND) for rule in rules)
