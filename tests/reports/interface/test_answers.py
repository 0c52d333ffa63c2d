import msgspec

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.core.exchange import Completed
from qlock.reports.interface.answers import FLIPS_SHOWN, agreement, endings, flips, slices
from tests.fakes.comparisons import a_plain_lock, a_reading, a_side, a_sitting, with_first
from tests.fakes.documents import a_digest

replace = msgspec.structs.replace


def between(a: str, b: str) -> Comparison:
    return compare(a_side(a), a_side(b, model="Q4_K_M"))


def test_endings_stand_side_by_side_with_their_intervals() -> None:
    part = endings(between("r" * 10, "r" * 8 + "bc"))
    assert part.rows == (
        ("orders", "eos", "10", "100 %", "72.2 % to 100 %", "8", "80.0 %", "49.0 % to 94.3 %"),
        ("orders", "budget", "0", "0 %", "0 % to 27.8 %", "1", "10.0 %", "1.8 % to 40.4 %"),
        ("orders", "context", "0", "0 %", "0 % to 27.8 %", "1", "10.0 %", "1.8 % to 40.4 %"),
        ("orders", "(with a loop)", "0", "0 %", "0 % to 27.8 %", "0", "0 %", "0 % to 27.8 %"),
    )
    assert part.remarks == ()


def test_a_side_without_replies_has_no_shares() -> None:
    a = a_side("rr")
    part = endings(compare(a, replace(a, sittings={"orders": (a_sitting("rr", rows=(), outcomes={}),)})))
    assert part.rows[0] == ("orders", "eos", "2", "100 %", "34.2 % to 100 %", "0", "-", "-")


def test_a_gap_of_endings_is_said_with_what_it_makes_of_the_difference() -> None:
    assert endings(between("r" * 20, "r" * 10 + "b" * 10)).remarks == (
        (
            "orders: unfinished replies lean to one side: only A in 0 pairs, only B in 10 (p 0.0020); "
            "they make -50.0 points of the difference"
        ),
        "orders: among the 10 pairs that both finished the difference is 0.0 points",
    )
    assert endings(between("r" * 20, "b" * 20)).remarks[1] == "orders: no pair was finished by both"


def test_loops_are_counted_beside_the_endings() -> None:
    a = a_side("r" * 3)
    sitting = a.sittings["orders"][0]
    loop = Completed(text="", tokens=(1, 2) * 40, ending="eos", prompt_tokens=1)
    looping = replace(sitting, rows=tuple(replace(row, replies=(loop,)) for row in sitting.rows))
    part = endings(compare(a, replace(a, sittings={"orders": (looping,)})))
    assert part.rows[-1] == (
        "orders",
        "(with a loop)",
        "0",
        "0 %",
        "0 % to 56.1 %",
        "3",
        "100 %",
        "43.9 % to 100 %",
    )


def test_agreement_tells_how_many_answers_are_equal_and_where_the_others_part() -> None:
    part = agreement(between("rrrw", "rrww"))
    assert part.rows == (
        ("orders", "4", "tokens", "3 (75.0 %)", "30.1 % to 95.4 %", "2 / 2 / 2 / 2 / 2", "1", "0"),
    )
    lock = with_first(a_plain_lock(), model={"tokenizer_digest": a_digest("x")})
    part = agreement(compare(a_side("rw"), a_side("rr", lock=lock)))
    assert part.rows[0][2:6] == ("text", "1 (50.0 %)", "9.5 % to 90.5 %", "the tokenizers differ")


def test_text_that_is_only_scored_has_neither_endings_nor_agreement() -> None:
    a = a_side(sittings={"wikitext": (a_reading([1.0, 2.0]),)})
    found = compare(a, a)
    assert (endings(found).rows, agreement(found).rows) == ((), ())
    assert flips(found.suite[0]).rows == ()


def test_slices_have_their_levels_and_both_p_values() -> None:
    found = between("r" * 40, "wr" * 10 + "r" * 20)
    part = slices(found.suite[1])
    assert part.heading == "Slices of orders"
    assert part.rows[0] == (
        "bank=north", "20", "100 %", "50.0 %", "-50.0 points", "-70.1 to -24.3 points", "0.0020", "0.0098",
    )  # fmt: skip
    assert part.remarks == ()
    invalid = compare(a_side("r" * 40), a_side("r" * 40, forced=("device",))).suite[1]
    assert slices(invalid).rows[0][5:] == ("-", "-", "-")
    few = replace(invalid, slices=replace(invalid.slices, left_out=7))
    assert slices(few).remarks == ("not shown: 7 smaller slices",)


def test_flips_show_both_answers_and_say_how_many_are_not_shown() -> None:
    many = FLIPS_SHOWN + 2
    part = flips(between("r" * many + "w", "b" * many + "r").suite[1])
    assert (part.heading, len(part.rows)) == ("Flips of orders", FLIPS_SHOWN + 1)
    assert part.rows[0] == (
        "item-0001", "bank=north, third=1", "2", "right", "The answer is 42.",
        "wrong: there is no answer, budget", "The answer is b.",
    )  # fmt: skip
    assert part.rows[-1][3:] == (
        "wrong: got `7`, expected `42`", "The answer is w.", "right", "The answer is 42.",
    )  # fmt: skip
    assert part.remarks == ("not shown here: 2 more; the JSON report has up to 50 each way",)


def test_a_flip_of_a_later_repeat_says_so() -> None:
    a = a_side(sittings={"orders": (a_sitting("r"), a_sitting("r", repeat=2))})
    b = a_side(sittings={"orders": (a_sitting("r"), a_sitting("w", repeat=2))})
    assert flips(compare(a, b).suite[1]).rows[0][0] == "item-0001 (repeat 2)"


def test_where_tokenizers_differ_no_token_is_named() -> None:
    lock = with_first(a_plain_lock(), model={"tokenizer_digest": a_digest("x")})
    assert flips(compare(a_side("r"), a_side("w", lock=lock)).suite[1]).rows[0][2] == "-"
