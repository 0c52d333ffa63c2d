from __future__ import annotations

from qlock.cli.inspected import MOST_ROWS, markdown, text
from qlock.core.gguf import Header, describe, read_header
from qlock.core.recipe import RecipeDifference, TypeChange
from qlock.flows.inspect import Inspection, SeenFile, Side
from tests.fakes.project import tiny_gguf


def side(template: str = "one") -> Side:
    data = tiny_gguf(template=template)
    header = read_header(data, len(data), name="m.gguf")
    assert isinstance(header, Header)
    return Side(
        source="m.gguf",
        commit="",
        file=(SeenFile(name="m.gguf", size_bytes=len(data)),),
        facts=describe(header),
        classes=(),
        tensors=1,
    )


def many(count: int) -> Inspection:
    changed = tuple(
        TypeChange(tensor=f"blk.{number}.w", type_a="Q4_K", type_b="Q6_K") for number in range(count)
    )
    difference = RecipeDifference(
        tensors_in_both=count, changed=changed, reshaped=(), only_in_a=("a",), only_in_b=("b",)
    )
    return Inspection(
        a=side(), b=side(), difference=difference, parts={"recipe": False}, template_difference=()
    )


def test_every_kind_of_difference_has_a_row() -> None:
    lines = text(many(1)).split("\n")
    assert lines[lines.index("Recipe") :] == [
        "Recipe",
        "  tensor   A       B",
        "  blk.0.w  Q4_K    Q6_K",
        "  a        there   absent",
        "  b        absent  there",
        "",
    ]


def test_a_long_table_is_cut_and_says_so() -> None:
    assert text(many(MOST_ROWS)).split("\n")[-2].split("  ")[1] == "and 2 more; --json has them all"
    assert markdown(many(MOST_ROWS)).split("\n")[-2] == "| and 2 more; --json has them all |  |  |"


def test_a_long_template_is_cut_and_says_so() -> None:
    found = Inspection(
        a=side("\n".join(str(number) for number in range(20))), parts={}, template_difference=()
    )
    assert text(found).split("\n")[-4:] == ["  6", "  7", "  … 12 more lines", ""]
