import msgspec

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.core.sides import Side
from qlock.reports.interface import parts
from qlock.reports.interface.bridge import DESCRIBES, bridge, steps
from qlock.reports.interface.part import Part
from tests.fakes.comparisons import a_crossing, a_reading, a_side, with_first

replace = msgspec.structs.replace


def crossed(way: tuple[Side, ...]) -> Comparison:
    a, here, there, b = way
    return compare(a, b, through=(here, there))


def test_every_point_of_the_way_has_a_row_with_its_change_from_the_one_before() -> None:
    way = a_crossing(
        "r" * 16 + "w" * 4, "r" * 15 + "w" * 5, "r" * 15 + "w" * 4 + "b", "r" * 10 + "w" * 9 + "."
    )
    assert bridge(crossed(way)) == Part(
        heading="Bridge",
        sentences=(
            (
                "`Q4_K_M@f16kv` was run on both devices, so the way from A to B is shown in three steps; "
                "a description: no step is tested, and no verdict and no gate rests on it"
            ),
        ),
        columns=(
            "suite",
            "measure",
            "point",
            "device",
            "score",
            "change",
            "equal",
            "unfinished",
            "what the step shows",
        ),
        rows=(
            (
                "orders",
                "right",
                "F16@f16kv",
                "cpu-amd-1a-02 (A)",
                "84.2 %",
                "-",
                "-",
                "0 %",
                "A, where it begins",
            ),
            (
                "orders",
                "right",
                "Q4_K_M@f16kv",
                "cpu-amd-1a-02 (A)",
                "78.9 %",
                "-5.3 points",
                "94.7 %",
                "0 %",
                "weights, on A's device",
            ),
            (
                "orders",
                "right",
                "Q4_K_M@f16kv",
                "gpu-nvidia-l4-x2 (B)",
                "78.9 %",
                "0.0 points",
                "100 %",
                "0 %",
                "device and engine alone",
            ),
            (
                "orders",
                "right",
                "Q2_K@f16kv",
                "gpu-nvidia-l4-x2 (B)",
                "52.6 %",
                "-26.3 points",
                "73.7 %",
                "0 %",
                "weights, on B's device",
            ),
        ),
        remarks=(
            (
                "orders: all three steps together are -31.6 points, over 19 items with a score on all four; "
                "left out, without one: 1"
            ),
        ),
    )


def test_a_text_is_told_as_perplexity_and_has_no_answers() -> None:
    way = [
        replace(side, sittings={"wikitext": (a_reading([cost]),)})
        for side, cost in zip(a_crossing("r", "r", "r", "r"), (250.0, 260.0, 261.0, 300.0), strict=True)
    ]
    part = bridge(crossed(tuple(way)))
    assert [row[4:8] for row in part.rows] == [
        ("12.18", "-", "-", "-"),
        ("13.46", "+0.1000 nats", "-", "-"),
        ("13.60", "+0.0100 nats", "-", "-"),
        ("20.09", "+0.3900 nats", "-", "-"),
    ]
    assert part.remarks == (
        "wikitext: all three steps together are +0.5000 nats, over 1 item with a score on all four",
    )


def test_without_items_that_all_have_there_are_no_rows() -> None:
    part = bridge(crossed(a_crossing("r.", ".r", "rr", "rr")))
    assert (part.rows, part.remarks) == ((), ("orders: no item has a score on all four",))


def test_what_else_differs_is_told_before_the_numbers() -> None:
    a, here, there, b = a_crossing("r", "r", "r", "r")
    there = replace(there, lock=with_first(there.lock, setting={"slots": 4}))
    assert bridge(crossed((a, here, there, b))).sentences[1:] == (
        "in the step from one device to the other, setting.slots differs too: `8` and `4`",
        "in the step from the bridge to B, setting.slots differs too: `4` and `8`",
    )


def test_without_a_bridge_there_is_no_part() -> None:
    assert "Bridge" not in [part.heading for part in parts(compare(a_side("r"), a_side("r")))]
    assert [part.heading for part in parts(crossed(a_crossing("r", "r", "r", "r")))][1] == "Bridge"


def test_the_steps_in_words() -> None:
    found = crossed(a_crossing("rr", "rw", "rw", "ww"))
    assert found.bridge
    assert list(steps(found, found.bridge.span[0])) == [
        ("weights, on A's device", "-50.0 points"),
        ("device and engine alone", "0.0 points"),
        ("weights, on B's device", "-50.0 points"),
    ]
    assert DESCRIBES in bridge(found).sentences[0]
