import msgspec
import pytest

from qlock.core.ladder import MarkDistance, ladder
from qlock.core.stats import CannotTell
from qlock.reports.interface.distance import LOWER_BOUNDS
from qlock.reports.interface.ladder import FASTER, digits_of, ladder_parts, level_text, shown_level
from qlock.reports.interface.part import Part
from tests.golden.make_reports import a_comparison, a_ladder

replace = msgspec.structs.replace
READ_OFF = (
    "in brackets: 95 % intervals; change is to the reference, bits are per weight; points are tested against their "
    "reference alone, never against one another; the front and the best are read off the levels"
)


def test_every_suite_has_a_table_with_every_point() -> None:
    text, exam = ladder_parts(ladder([a_comparison()]))
    assert text.columns == ("point", "size", "bits", "score", "change", "verdict", "front")
    assert text.rows == (
        ("F16@f16kv", "105.5 MB", "16.00", "23.10 (22.37 to 23.86)", "-", "reference", "front"),
        ("Q4_K_M@f16kv", "105.5 MB", "4.85", "23.62 (22.87 to 24.40)", "+0.0222 nats (+0.0206 to +0.0238)", "worse", ""),
    )  # fmt: skip
    assert exam.columns[6:] == ("unfinished", "loops", "equal", "front")
    assert exam.rows == (
        ("F16@f16kv", "105.5 MB", "16.00", "80.4 % (72.0 to 86.7 %)", "-", "reference", "1.7 %", "0 %", "-", ""),
        ("Q4_K_M@f16kv", "105.5 MB", "4.85", "82.1 % (74.0 to 88.1 %)", "+1.8 points (-5.2 to +9.0)", "no difference seen", "2.6 %", "0 %", "86.8 %", "front"),
    )  # fmt: skip
    assert all(len(row) == len(part.columns) for part in (text, exam) for row in part.rows)
    assert (text.heading, text.sentences, text.remarks) == ("Ladder of wikitext", (), ())
    assert (exam.heading, exam.sentences, exam.remarks) == ("Ladder of orders", (), (READ_OFF,))


def test_distance_speed_and_memory_stand_where_they_are_known() -> None:
    distance, text, exam = ladder_parts(a_ladder())
    assert distance.columns[6:] == ("99.9 % below", "same likeliest", "memory", "front")
    assert distance.rows[1][3:4] + distance.rows[1][6:] == (
        "0.001187 (0.001142 to 0.001233)", "0.002062", "100 %", "192.0 MB", "front"
    )  # fmt: skip
    assert text.columns[6:] == ("KL in distance", "memory", "front")
    assert exam.columns[6:] == (
        "unfinished", "loops", "equal", "KL in distance", "tokens/s", "memory", "front"
    )  # fmt: skip
    assert [row[9:] for row in exam.rows] == [
        ("0.000000", "21.27", "318.1 MB", ""),
        ("0.001187", "28.30", "192.0 MB", "front"),
        ("0.023750", "42.87", "152.7 MB", "front"),
        ("0.023750", "42.87", "152.7 MB", ""),
        ("0.356250", "56.30", "117.2 MB", "front"),
    ]
    assert (text.remarks, exam.remarks) == ((), (FASTER, READ_OFF))


def test_lower_bounds_are_called_so() -> None:
    found = a_ladder()
    rung = found.rung[1]
    far = rung.mark[0].distance
    assert isinstance(far, MarkDistance)
    bound = replace(rung.mark[0], distance=replace(far, kld_slack_nats=0.1))
    bounded = replace(rung, mark=(bound, *rung.mark[1:]))
    *_, exam = ladder_parts(replace(found, rung=(found.rung[0], bounded, *found.rung[2:])))
    assert exam.remarks == (FASTER, LOWER_BOUNDS, READ_OFF)


def test_of_several_distances_none_stands_beside_other_suites() -> None:
    found = a_ladder()
    twice = [
        replace(one, suite=(*one.suite, replace(one.suite[0], suite="other"))) for one in found.comparison
    ]
    parts = {part.heading: part.columns for part in ladder_parts(ladder(twice))}
    assert "KL in distance" not in parts["Ladder of orders"]
    assert "99.9 % below" in parts["Ladder of other"]


def test_the_best_under_a_size_is_named_or_said_not_to_be_there() -> None:
    found = ladder_parts(ladder([a_comparison()], at_most_bytes=106_000_000))
    assert [part.sentences for part in found] == [
        ("best at or under 106.0 MB: F16@f16kv, of 2 points",),
        ("best at or under 106.0 MB: Q4_K_M@f16kv, of 2 points",),
    ]
    (first, _) = ladder_parts(ladder([a_comparison()], at_most_bytes=1))
    assert first.sentences == ("best at or under 1 B: no valid point with a score is so small",)


def test_a_point_that_may_not_be_compared_has_no_verdict() -> None:
    for part in ladder_parts(ladder([replace(a_comparison(), state="incomplete")])):
        assert [row[5] for row in part.rows] == ["reference", "incomplete: no verdict"]


def test_what_is_not_known_is_a_dash() -> None:
    found = a_comparison()
    unknown = CannotTell(why="there are no pairs")
    score = replace(found.suite[1].score, levels=unknown, a=unknown, b=unknown, difference=unknown)
    recipes = replace(found.recipes, bits_per_weight_b=unknown)
    (part,) = ladder_parts(
        ladder([replace(found, suite=(replace(found.suite[1], score=score),), recipes=recipes)])
    )
    assert part.columns[2:6] == ("bits", "score", "verdict", "unfinished")
    assert part.rows[1][2:5] == ("unknown", "-", "no difference seen")


def test_text_is_shown_as_perplexity() -> None:
    assert shown_level("nats-per-token", 0.0) == 1.0
    assert level_text("nats-per-token", 3.14) == "23.10"
    assert level_text("nats-per-token", 3.14, digits=3) == "23.104"
    assert shown_level("right-share", 0.5) == 0.5
    assert level_text("mean-mark", 1.2) == "100 %"
    assert level_text("kld", 0.0123) == "0.012300"


def test_a_cost_beyond_all_numbers_stays_one() -> None:
    assert level_text("nats-per-token", 1e9) == "1.014e+304"


@pytest.mark.parametrize(
    "values, digits",
    [
        ([], 3),
        ([0.0], 3),
        ([9.99, 4000.0], 3),
        ([21.9981, 9000.0], 2),
        ([123.4], 1),
        ([12345.0], 0),
        ([1e-9], 6),
    ],
)
def test_a_column_has_as_many_digits_as_show_four_of_its_smallest_number(
    values: list[float], digits: int
) -> None:
    assert digits_of(values) == digits


def test_every_row_of_a_column_has_the_same_digits_after_the_point() -> None:
    told = {
        name: [cell for part in ladder_parts(a_ladder()) for cell in _column(part, name)]
        for name in ("score", "tokens/s")
    }
    assert told["tokens/s"] == ["21.27", "28.30", "42.87", "42.87", "56.30"]
    assert told["score"][5:10] == [
        "23.10 (22.37 to 23.86)",
        "23.18 (22.44 to 23.93)",
        "24.60 (23.81 to 25.42)",
        "24.60 (23.81 to 25.42)",
        "59.26 (56.84 to 61.79)",
    ]


def _column(part: Part, name: str) -> list[str]:
    return [row[part.columns.index(name)] for row in part.rows] if name in part.columns else []
