import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.agreement import Agreement
from qlock.core.compare import compare, compare_locks
from qlock.core.comparison import Distances, Recipes, Suite, TypeRow, exit_code_of
from qlock.core.distance import Distance
from qlock.core.endings import Endings
from qlock.core.exchange import Ungraded
from qlock.core.noise import Floor
from qlock.core.rules import NoMoreErrors, NonInferior
from qlock.core.scores import Levels, p_of
from qlock.core.sides import Side
from qlock.core.stats import CannotTell, Interval, wilson
from qlock.errors import ExitCode
from tests.fakes.comparisons import (
    a_distance,
    a_plain_lock,
    a_reading,
    a_side,
    a_sitting,
    varying,
    with_first,
)
from tests.fakes.documents import a_digest, a_kld_lock

replace = msgspec.structs.replace
GOOD, BAD = "r" * 40, "r" * 20 + "w" * 20


def test_two_quants_of_one_run_are_compared() -> None:
    found = compare(a_side(GOOD), a_side(BAD, model="Q4_K_M"))
    assert (found.state, found.why, found.treatment, found.treatment_differs) == (
        "valid",
        (),
        "weights",
        True,
    )
    assert [suite.suite for suite in found.suite] == ["wikitext", "orders"]
    score = found.suite[1].score
    assert (score.pairs, score.verdict) == (40, "b-worse")
    assert found.said_first == ("both sides: tokenizer.ggml.pre is missing",)
    assert found.a.name == "runs/ladder:F16@f16kv"
    assert (found.b.model, found.b.setting, found.b.device) == ("Q4_K_M", "f16kv", "cpu-amd-1a-02")
    assert (found.b.engine, found.b.repeatable) == ("embedded (b6000 (built with GCC 13))", "bitwise")


def test_a_point_compared_with_itself_is_zero() -> None:
    found = compare(a_side(BAD), a_side(BAD))
    assert (found.state, found.treatment_differs, found.difference) == ("valid", False, ())
    suite = found.suite[1]
    assert suite.score.levels == Levels(a=0.5, b=0.5, change=0.0)
    assert p_of(suite.score.test) == 1.0
    assert suite.score.verdict == "no-difference-seen"


def test_another_machine_makes_it_invalid_and_its_numbers_a_description() -> None:
    lock = with_first(a_plain_lock(), device={"cpu_model": "Xeon"})
    found = compare(a_side(GOOD), a_side(BAD, lock=lock))
    assert (found.state, found.why) == (
        "invalid",
        ("fatal: device.cpu_model: A has `AMD EPYC 9555`, B has `Xeon`",),
    )
    suite = found.suite[1]
    unknown = CannotTell(why="the comparison is invalid, so this is a description only")
    assert suite.score.levels == Levels(a=1.0, b=0.5, change=-0.5)
    assert (suite.score.test, suite.score.difference, suite.score.verdict) == (unknown, unknown, "withheld")
    assert {row.p_value for row in suite.slices.row} == {unknown}
    assert isinstance(suite.endings, Endings)
    assert suite.endings.gap.test == unknown


def test_what_is_not_declared_makes_it_invalid_and_declaring_it_valid() -> None:
    lock = with_first(a_plain_lock(), setting={"cache_type_k": "q8_0"})
    a, b = a_side(GOOD), a_side(BAD, lock=lock)
    assert compare(a, b).why == ("confound: setting.cache_type_k: A has `f16`, B has `q8_0`",)
    assert compare(a, b, treatment="kv").state == "valid"


def test_digests_are_shortened_where_it_is_said_why() -> None:
    lock = with_first(a_plain_lock(), model={"tokenizer_digest": a_digest("x")})
    head_a, head_b = a_digest("tokenizer")[:19], a_digest("x")[:19]
    assert compare(a_side(GOOD), a_side(GOOD, lock=lock)).why == (
        f"confound: model.tokenizer_digest: A has `{head_a}…`, B has `{head_b}…`",
    )


def test_fatal_differences_are_told_first_and_at_most_twenty() -> None:
    other = dict.fromkeys(
        ("slots", "batch_tokens", "ubatch_tokens", "threads", "batch_threads", "main_gpu"), 7
    )
    lock = with_first(
        a_plain_lock(),
        setting={**other, "repack": False, "swa_full": True, "op_offload": True, "flash_attention": True},
        engine={"kind": "llama.cpp"},
        model={"sampling": {f"key{index:02}": index for index in range(12)}},
        device={"cpu_family": 6},
    )
    why = compare(a_side(GOOD), a_side(GOOD, lock=lock)).why
    assert why[0] == "fatal: engine.kind: A has `llama-cpp-python`, B has `llama.cpp`"
    assert why[1] == "fatal: device.cpu_family: A has `26`, B has `6`"
    assert len(why) == 21
    assert why[-1] == "and 6 more"


def test_a_forced_run_is_never_valid() -> None:
    found = compare(a_side(GOOD), a_side(GOOD, forced=("device.cores",)))
    assert found.why == (
        (
            "fatal: forced.device.cores: A has `as locked`, B has `forced` "
            "(the run went on although this fact was not as locked)"
        ),
    )


def test_an_open_run_is_compared_as_far_as_it_goes() -> None:
    found = compare(a_side(GOOD), a_side("r" * 20 + "." * 20, sealed=False))
    assert (found.state, found.why) == (
        "incomplete",
        ("the run of side B (`runs/ladder:F16@f16kv`) is not sealed: it is not complete",),
    )
    score = found.suite[1].score
    assert (score.pairs, score.verdict, score.why) == (
        20,
        "withheld",
        "a run is not complete, so this is a description only",
    )


def test_a_warning_of_one_side_alone_is_said_first() -> None:
    lock = with_first(a_plain_lock(), model={"warnings": ("tokenizer.ggml.pre is missing", "old\x1b")})
    found = compare(a_side(lock=lock), a_side(lock=with_first(lock, model={"warnings": ("new",)})))
    assert found.said_first == (
        "side A alone: tokenizer.ggml.pre is missing",
        "side A alone: old\\x1b",
        "side B alone: new",
    )


def test_a_gap_of_endings_withholds_the_verdict_on_quality() -> None:
    found = compare(a_side("r" * 40), a_side("r" * 30 + "b" * 10, model="Q4_K_M")).suite[1].score
    assert (found.verdict, found.why) == (
        "withheld",
        (
            "unfinished replies lean to one side (pairs with A's alone 0, B's alone 10), "
            "so the scores say how far each came, not which is better"
        ),
    )
    assert p_of(found.test) == pytest.approx(2 * 0.5**10)


def test_a_quant_that_only_finishes_more_often_is_not_called_better() -> None:
    """36.2 % with 275 unfinished against 40.4 % with 11: https://edmcman.github.io/blog/tags/autobench/."""
    a = "r" * 181 + "w" * 44 + "b" * 275
    b = "r" * 181 + "w" * 287 + "r" * 21 + "b" * 11
    found = compare(a_side(a), a_side(b, model="Q4_K_M")).suite[1]
    assert found.score.levels == Levels(a=0.362, b=0.404, change=0.042)
    assert p_of(found.score.test) == pytest.approx(9.5367e-07, rel=1e-3)
    assert found.score.verdict == "withheld"
    assert isinstance(found.endings, Endings)
    assert (found.endings.gap.only_a, found.endings.gap.only_b, found.endings.gap.differs) == (264, 0, True)


def test_groups_of_unequal_size_weigh_by_their_items() -> None:
    a, b = "r" * 400 + "w" * 100, "r" * 400 + "r" * 50 + "w" * 50
    found = compare(a_side(a), a_side(b, model="Q4_K_M")).suite[1].score
    assert found.levels == Levels(a=0.8, b=0.9, change=0.1)


def test_a_second_run_gives_the_noise_floor() -> None:
    lock = varying(a_plain_lock())
    a = a_side("r" * 96 + "w" * 4, lock=lock)
    b = a_side("r" * 84 + "w" * 6 + "r" * 6 + "w" * 4, model="Q4_K_M", lock=lock)
    assert compare(a, b).suite[1].score.verdict == "b-worse"
    again = replace(a, sittings={"orders": (a_sitting("r" * 92 + "w" * 4 + "r" * 4),)})
    found = compare(a, b, again_a=again)
    assert found.suite[1].noise == (
        Floor(side="a", measure="right-share", pairs=100, value=0.08, flips=wilson(8, 100)),
    )
    assert found.suite[1].score.verdict == "within-noise"
    assert found.noise_unmeasured == ""
    assert [floor.side for floor in compare(a, b, again_a=a, again_b=b).suite[1].noise] == ["a", "b"]


def test_suites_of_one_side_alone_are_listed() -> None:
    lock = a_plain_lock()
    text, exam = lock.suite
    found = compare(
        a_side(GOOD, lock=replace(lock, suite=(text,))), a_side(GOOD, lock=replace(lock, suite=(exam,)))
    )
    assert (found.only_a, found.only_b, found.suite) == (("wikitext",), ("orders",), ())


def test_a_suite_that_one_side_did_not_begin_is_all_missing() -> None:
    begun = replace(a_side(GOOD), sittings={"orders": (a_sitting(GOOD),)})
    found = compare(
        begun, replace(begun, sealed=False, sittings={"orders": (a_sitting(GOOD, rows=(), outcomes={}),)})
    )
    assert (found.suite[1].score.pairs, found.suite[1].lost) == (0, 40)


def test_the_gates_of_both_locks_hold() -> None:
    strict = NoMoreErrors(suite="orders")
    loose = NonInferior(suite="orders", margin_share=0.9)
    a = a_side(GOOD, lock=a_plain_lock(gate=(strict, loose)))
    b = a_side(BAD, model="Q4_K_M", lock=a_plain_lock(gate=(loose,)))
    assert [(gate.asked, gate.verdict) for gate in compare(a, b).gate] == [(strict, "fail"), (loose, "pass")]
    invalid = compare(a, replace(b, forced=("device",)))
    assert {(gate.verdict, gate.why) for gate in invalid.gate} == {
        ("undecided", "the comparison is invalid, so this is a description only")
    }


def test_recipes_stand_side_by_side() -> None:
    lock = a_plain_lock()
    row = lock.model[0].recipe[1]
    recipe = (replace(row, type="Q8_0", tensors=7), replace(row, type="type 156 (unknown)", bytes=UNSET))
    other = with_first(lock, model={"recipe": recipe, "bits_per_weight": UNSET})
    found = compare(a_side(lock=lock), a_side(lock=other)).recipes
    unknown = CannotTell(why="the type is unknown")
    assert found == Recipes(
        bits_per_weight_a=4.85,
        bits_per_weight_b=CannotTell(why="a tensor has an unknown type"),
        file_bytes_a=105_454_432,
        file_bytes_b=105_454_432,
        row=(
            TypeRow(type="F32", tensors_a=61, tensors_b=0, bytes_a=140_544, bytes_b=0),
            TypeRow(type="Q4_K", tensors_a=211, tensors_b=0, bytes_a=75_644_928, bytes_b=0),
            TypeRow(type="Q8_0", tensors_a=0, tensors_b=7, bytes_a=0, bytes_b=75_644_928),
            TypeRow(type="type 156 (unknown)", tensors_a=0, tensors_b=211, bytes_a=0, bytes_b=unknown),
        ),
    )


def test_answers_of_two_tokenizers_are_compared_as_text() -> None:
    lock = with_first(a_plain_lock(), model={"tokenizer_digest": a_digest("x")})
    found = compare(a_side(GOOD), a_side(BAD, lock=lock)).suite[1].agreement
    assert not isinstance(found, CannotTell)
    assert found.by == "text"


def test_a_reading_is_compared_window_by_window() -> None:
    sittings = {"wikitext": (a_reading([300.0 + index for index in range(12)]),)}
    worse = {"wikitext": (a_reading([302.0 + index * 1.01 for index in range(12)]),)}
    found = compare(a_side(sittings=sittings), a_side(model="Q4_K_M", sittings=worse))
    assert (found.suite[0].suite, found.suite[0].score.verdict) == ("wikitext", "b-worse")
    assert found.suite[0].endings == CannotTell(why="nothing was written in this suite")


LETTERS = st.text("rwubcexh.", min_size=1, max_size=16)


@settings(max_examples=25)
@given(LETTERS, LETTERS)
def test_exchanging_the_sides_negates_every_difference(a: str, b: str) -> None:
    left, right = a_side(a), a_side(b, model="Q4_K_M")
    one, other = compare(left, right), compare(right, left)
    assert (one.state, one.a, one.b) == (other.state, other.b, other.a)
    for mine, theirs in zip(one.suite, other.suite, strict=True):
        assert (mine.lost, mine.score.pairs) == (theirs.lost, theirs.score.pairs)
        match mine.score.levels, theirs.score.levels:
            case Levels() as here, Levels() as there:
                assert (here.a, here.b, here.change) == (there.b, there.a, -there.change)
            case here_, there_:
                assert here_ == there_
        match mine.score.difference, theirs.score.difference:
            case Interval() as up, Interval() as down:
                assert (up.point, up.low, up.high) == (-down.point, -down.high, -down.low)
            case up_, down_:
                assert type(up_) is type(down_) is CannotTell
        for row, mirrored in zip(mine.slices.row, theirs.slices.row, strict=True):
            assert (row.slice, row.p_holm) == (mirrored.slice, mirrored.p_holm)


@settings(max_examples=25)
@given(LETTERS)
def test_any_side_against_itself_is_zero(letters: str) -> None:
    for suite in compare(a_side(letters), a_side(letters)).suite:
        match suite.score.levels:
            case Levels(change=change):
                assert change == 0.0
            case CannotTell():
                assert suite.score.pairs == 0
        assert suite.score.verdict not in ("b-better", "b-worse")


def follows(a: Side, b: Side) -> tuple[str, ...]:
    """What is said first of two locks, but for warnings of models."""
    return tuple(one for one in compare_locks(a, b).said_first if not one.startswith("both sides: "))


def test_two_points_of_a_lock_are_compared_before_anything_is_run() -> None:
    found = compare_locks(a_side(sealed=False), a_side(model="Q4_K_M", sealed=False))
    assert (found.state, found.treatment_differs, found.suite, found.gate) == ("valid", True, (), ())
    assert (found.a.record, found.b.record, found.noise_unmeasured) == ("none", "none", "")
    assert found.said_first[0] == (
        "locks alone: nothing is measured here; runs of these two points may be compared"
    )
    assert {one.path for one in found.difference} >= {"model.tensors_digest", "model.file.weights"}
    assert exit_code_of((found,)) == ExitCode.YES


def test_locks_of_two_machines_may_not_be_compared() -> None:
    elsewhere = a_side(lock=with_first(a_plain_lock(), device={"cpu_model": "Xeon"}), sealed=False)
    found = compare_locks(a_side(sealed=False), elsewhere)
    assert (found.state, found.why) == (
        "invalid",
        ("fatal: device.cpu_model: A has `AMD EPYC 9555`, B has `Xeon`",),
    )
    assert follows(a_side(), elsewhere) == (
        "locks alone: nothing is measured here; runs of these two points may not be compared",
        (
            "0 of 2 jobs are the same, and their records are taken over; "
            "to be measured: wikitext.F16@f16kv.1, orders.F16@f16kv.1"
        ),
    )
    assert exit_code_of((found,)) == ExitCode.INVALID


def test_what_a_new_lock_measures_again_is_said() -> None:
    lock = a_plain_lock()
    text, exam = lock.suite
    other = replace(lock, suite=(text, replace(exam, ask_version=exam.ask_version + 1)))
    assert follows(a_side(lock=lock), a_side(lock=other))[1] == (
        "1 of 2 jobs are the same, and their records are taken over; to be measured: orders.F16@f16kv.1"
    )
    gated = replace(lock, gate=(NoMoreErrors(suite="orders"),))
    assert follows(a_side(lock=lock), a_side(lock=gated))[1] == (
        "2 of 2 jobs are the same, and their records are taken over"
    )


def test_a_lock_that_is_not_proved_yet_does_not_know_its_jobs() -> None:
    early = with_first(a_plain_lock(), point={"prompts": UNSET})
    assert follows(a_side(), a_side(lock=early))[1] == (
        "a lock is not proved yet, so it is not known which jobs would have to be measured again"
    )


def test_flips_of_a_slice_with_a_gate_are_told_first() -> None:
    lock = a_plain_lock(gate=(NoMoreErrors(suite="orders", slice="south"),))
    agreed = compare(a_side("rrrr", lock=lock), a_side("wwww", lock=lock)).suite[1].agreement
    assert isinstance(agreed, Agreement)
    assert [flip.item for flip in agreed.flip] == ["item-0002", "item-0004", "item-0001", "item-0003"]


def of_distance(a: list[float], b: list[float], *, stored: bool = False) -> Suite:
    """The suite `distance` of two quants under one lock."""
    lock = a_kld_lock(gate=())
    params = {**lock.suite[0].params, "stored": stored}
    lock = replace(lock, suite=(replace(lock.suite[0], params=params), *lock.suite[1:]))
    left, right = (
        a_side(lock=lock, model=model, sittings={"distance": (a_distance(kld),)})
        for model, kld in (("F16", a), ("Q4_K_M", b))
    )
    return next(suite for suite in compare(left, right).suite if suite.suite == "distance")


NEAR = [0.05 + 0.001 * index for index in range(12)]


def test_what_the_way_of_measuring_could_make_is_no_difference() -> None:
    nearly = [mean + 1e-5 + 1e-7 * index for index, mean in enumerate(NEAR)]
    assert of_distance(NEAR, nearly).score.verdict == "b-worse"
    found = of_distance(NEAR, nearly, stored=True).score
    assert (found.verdict, found.why) == (
        "within-noise",
        "the way of measuring alone can make as much",
    )
    assert of_distance(NEAR, NEAR, stored=True).score.verdict == "no-difference-seen"


def test_both_sides_are_told_from_the_reference() -> None:
    found = of_distance([0.0] * 12, NEAR).distances
    assert isinstance(found, Distances)
    assert isinstance(found.a, Distance)
    assert isinstance(found.b, Distance)
    assert (found.a.is_identical, found.b.is_identical) == (True, False)
    assert found.b.figures.kld_nats.value == pytest.approx(0.0555)


def test_a_side_with_an_item_without_divergences_has_no_distance() -> None:
    lock = a_kld_lock(gate=())
    whole, torn = a_distance(NEAR), a_distance(NEAR)
    torn = replace(torn, outcomes={**torn.outcomes, "window-0003": Ungraded(why="lost")})
    sides = [
        a_side(lock=lock, model=model, sittings={"distance": (sitting,)})
        for model, sitting in (("F16", whole), ("Q4_K_M", torn))
    ]
    found = next(suite for suite in compare(*sides).suite if suite.suite == "distance").distances
    assert isinstance(found, Distances)
    assert found.b == CannotTell(why="item 3 has no divergence")
    others = next(suite for suite in compare(*sides).suite if suite.suite == "orders")
    assert others.distances is UNSET
