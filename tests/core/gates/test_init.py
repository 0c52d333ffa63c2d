from qlock.core.gates import Gate, judge
from qlock.core.gates.shares import judge as judge_shares
from qlock.core.pairs import pair
from qlock.core.rules import NonInferior
from qlock.core.stats import CannotTell
from tests.fakes.comparisons import a_sitting


def test_a_suite_that_is_not_on_both_sides_is_undecided() -> None:
    rule = NonInferior(suite="orders")
    why = "the suite `orders` is not on both sides"
    assert judge(rule, None) == Gate(asked=rule, verdict="undecided", why=why, seen=CannotTell(why=why))


def test_a_rule_about_shares_is_judged_by_its_pairs() -> None:
    rule = NonInferior(suite="orders", margin_share=0.05)
    pairing = pair((a_sitting("r" * 40),), (a_sitting("r" * 40),))
    assert judge(rule, pairing) == judge_shares(rule, pairing)
    assert judge(rule, pairing, withheld="it is open").why == "it is open"
