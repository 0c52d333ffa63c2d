from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET

from qlock.cli.inspected import MOST_ROWS, MOST_TENSORS, markdown, text
from qlock.core.gguf import Header, describe, read_header
from qlock.core.recipe import RecipeDifference, TypeChange
from qlock.flows.inspect import Inspection, SeenFile, Side, TensorRow
from tests.fakes.project import tiny_gguf


def side(template: str = "one") -> Side:
    data = tiny_gguf(template=template)
    header = read_header(data, len(data), name="m.gguf")
    assert isinstance(header, Header)
    return Side(
        source="m.gguf",
        commit="",
        file=(SeenFile(name="m.gguf", size_bytes=len(data), tensors=1),),
        facts=describe(header),
        classes=(),
        tensors=1,
        tensor=(row("token_embd.weight"),),
    )


def row(name: str, kind: str = "F32", *, shape: tuple[int, ...] = (32,), file: int = 1) -> TensorRow:
    return TensorRow(name=name, type=kind, shape=shape, bytes=128, file=file)


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


def of(*rows: TensorRow) -> Side:
    return msgspec.structs.replace(side(), tensor=rows, tensors=len(rows))


def tensors(found: Inspection) -> list[str]:
    lines = text(found, tensors=True).split("\n")
    return lines[lines.index("Tensors") + 1 : lines.index("", lines.index("Tensors"))]


def test_each_tensor_of_a_model_is_shown_when_asked_for() -> None:
    rows = (row("blk.10.w", "Q4_K", shape=(32, 2)), row("blk.2.w", "Q6_K", file=2), row("one", shape=()))
    unknown = msgspec.structs.replace(row("odd", "type 156 (unknown)"), bytes=UNSET)
    assert tensors(Inspection(a=of(*rows, unknown), parts={}, template_difference=())) == [
        "  tensor    type                shape         bytes  file",
        "  odd       type 156 (unknown)  32          unknown     1",
        "  one       F32                 one number      128     1",
        "  blk.2.w   Q6_K                32              128     2",
        "  blk.10.w  Q4_K                32 × 2          128     1",
    ]


def test_each_tensor_of_two_models_is_shown_with_what_differs() -> None:
    a = of(row("blk.0.w", "Q4_K"), row("blk.1.w", "Q4_K"), row("gone"), row("wide", shape=(32, 2)))
    b = of(row("blk.0.w", "Q4_K"), row("blk.1.w", "Q6_K"), row("new"), row("wide", shape=(64,)))
    assert tensors(Inspection(a=a, b=b, parts={}, template_difference=())) == [
        "  tensor   A           B",
        "  gone     F32 32      absent   ≠",
        "  new      absent      F32 32   ≠",
        "  blk.0.w  Q4_K 32     Q4_K 32",
        "  blk.1.w  Q4_K 32     Q6_K 32  ≠",
        "  wide     F32 32 × 2  F32 64   ≠",
    ]


def test_a_table_of_all_tensors_is_bounded_too() -> None:
    many_rows = tuple(row(f"blk.{number}.w") for number in range(MOST_TENSORS + 3))
    found = Inspection(a=of(*many_rows), parts={}, template_difference=())
    assert tensors(found)[-1] == "  and 3 more; --json has them all"
    assert "Tensors" not in text(found)


def test_a_set_of_files_is_listed() -> None:
    files = tuple(
        SeenFile(name=f"m-{number}.gguf", size_bytes=10 * number, tensors=number) for number in (1, 2)
    )
    lines = text(Inspection(a=msgspec.structs.replace(side(), file=files), parts={}, template_difference=()))
    assert lines.split("\n\n")[1].split("\n") == [
        "Files",
        "  file      bytes  tensors  sha256",
        "  m-1.gguf     10        1  not said",
        "  m-2.gguf     20        2  not said",
    ]
