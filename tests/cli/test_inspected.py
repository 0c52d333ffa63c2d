from __future__ import annotations

import pytest

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


def test_tensors_stand_by_class_and_in_the_order_of_their_numbers() -> None:
    names = ["blk.10.ffn_up.weight", "blk.2.ffn_up.weight", "blk.10.attn_q.weight", "blk.2.attn_q.weight"]
    changed = tuple(TypeChange(tensor=name, type_a="Q4_K", type_b="Q6_K") for name in names)
    difference = RecipeDifference(
        tensors_in_both=4, changed=changed, reshaped=(), only_in_a=("blk.10.b", "blk.9.b"), only_in_b=()
    )
    found = Inspection(
        a=side(), b=side(), difference=difference, parts={"recipe": False}, template_difference=()
    )
    lines = text(found).split("\n")
    assert [line.split()[0] for line in lines[lines.index("Recipe") + 2 : -1]] == [
        "blk.2.attn_q.weight",
        "blk.10.attn_q.weight",
        "blk.2.ffn_up.weight",
        "blk.10.ffn_up.weight",
        "blk.9.b",
        "blk.10.b",
    ]


def test_a_number_of_any_length_is_put_in_order() -> None:
    changed = tuple(
        TypeChange(tensor=f"blk.{number}.w", type_a="Q4_K", type_b="Q6_K") for number in ("9" * 5_000, "7")
    )
    difference = RecipeDifference(tensors_in_both=2, changed=changed, reshaped=(), only_in_a=(), only_in_b=())
    found = Inspection(
        a=side(), b=side(), difference=difference, parts={"recipe": False}, template_difference=()
    )
    lines = text(found).split("\n")
    assert lines[lines.index("Recipe") + 2].startswith("  blk.7.w")


@pytest.mark.parametrize("parts, is_said", [({}, True), ({"files": False}, True), ({"files": True}, False)])
def test_that_weights_were_not_compared_is_said(parts: dict[str, bool], *, is_said: bool) -> None:
    found = Inspection(a=side(), b=side(), parts=parts, template_difference=())
    assert ("  weights  not compared: headers alone are read" in text(found).split("\n")) is is_said


def test_a_long_table_is_cut_and_says_so() -> None:
    assert text(many(MOST_ROWS)).split("\n")[-2].split("  ")[1] == "and 2 more; --json has them all"
    assert markdown(many(MOST_ROWS)).split("\n")[-2] == "| and 2 more; --json has them all |  |  |"


def test_a_long_template_is_cut_and_says_so() -> None:
    found = Inspection(
        a=side("\n".join(str(number) for number in range(20))), parts={}, template_difference=()
    )
    assert text(found).split("\n")[-4:] == ["  6", "  7", "  … 12 more lines", ""]
