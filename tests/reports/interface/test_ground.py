import msgspec
from msgspec import UNSET

from qlock.core.compare import compare
from qlock.reports.interface.ground import differences, recipes, sides
from tests.fakes.comparisons import a_plain_lock, a_side, with_first

replace = msgspec.structs.replace


def test_both_sides_are_named_with_engine_and_device() -> None:
    part = sides(compare(a_side(), a_side(model="Q4_K_M", sealed=False)))
    engine = "embedded (b6000 (built with GCC 13))"
    assert part.rows == (
        ("A", "runs/ladder:F16@f16kv", engine, "cpu-amd-1a-02", "bitwise", "sealed"),
        ("B", "runs/ladder:Q4_K_M@f16kv", engine, "cpu-amd-1a-02", "bitwise", "open"),
    )
    assert part.sentences == (
        "the run of side B (`runs/ladder:Q4_K_M@f16kv`) is not sealed: it is not complete",
        "before any number: both sides: tokenizer.ggml.pre is missing",
    )


def test_it_is_said_when_nothing_of_what_is_meant_to_differ_does() -> None:
    assert sides(compare(a_side(), a_side())).sentences[0] == "nothing of what is meant to differ does"


def test_suites_of_one_side_alone_are_named() -> None:
    lock = a_plain_lock()
    text, exam = lock.suite
    found = compare(a_side(lock=replace(lock, suite=(text,))), a_side(lock=replace(lock, suite=(exam,))))
    assert sides(found).sentences[-2:] == (
        "on side A alone, and not compared: wikitext",
        "on side B alone, and not compared: orders",
    )


def test_recipes_stand_side_by_side_and_what_is_unknown_says_so() -> None:
    lock = a_plain_lock()
    odd = replace(lock.model[0].recipe[0], type="type 156 (unknown)", bytes=UNSET)
    other = with_first(lock, model={"recipe": (odd,), "bits_per_weight": UNSET})
    part = recipes(compare(a_side(lock=lock), a_side(lock=other)))
    assert part.sentences == ("bits per weight: A 4.85, B unknown; weight files: A 105.5 MB, B 105.5 MB",)
    assert part.rows == (
        ("F32", "61", "140.5 kB", "0", "0 B"),
        ("Q4_K", "211", "75.6 MB", "0", "0 B"),
        ("type 156 (unknown)", "0", "0 B", "61", "unknown"),
    )


def test_every_fact_that_differs_is_told() -> None:
    lock = with_first(a_plain_lock(), setting={"threads": 4})
    assert differences(compare(a_side(), a_side(lock=lock))).rows == (
        ("setting.threads", "confound", "2", "4", ""),
    )
