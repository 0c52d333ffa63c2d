"""Sets of shards: their names, what they say of themselves, and every way a set can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.gguf_header import Header
from qlock.core.gguf_reader import read_header
from qlock.core.gguf_split import Split, check_split, shard_names, split_of
from qlock.errors import InputError
from tests.broken import make_gguf as make

NAMES = ("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf")
LLAMA = make.LLAMA
QWEN = make.kv("general.architecture", make.STRING, "qwen3")


def header_of(keys: list[bytes], tensors: tuple[str, ...] = ()) -> Header:
    rows = [make.tensor(name, (32,), 0, 128 * place) for place, name in enumerate(tensors)]
    content = make.gguf(keys, rows, make.ROW * len(rows))
    header = read_header(content, len(content))
    assert isinstance(header, Header)
    return header


def split_keys(no: int, count: int = 3, total: int | None = 3) -> list[bytes]:
    keys = [make.kv("split.no", make.U16, no), make.kv("split.count", make.U16, count)]
    return keys if total is None else [*keys, make.kv("split.tensors.count", make.I32, total)]


def shard(
    no: int, tensor: str = "", *, count: int = 3, total: int | None = 3, keys: tuple[bytes, ...] = ()
) -> Header:
    return header_of([*keys, *split_keys(no, count, total)], (tensor or "abc"[no],))


WHOLE = (
    (NAMES[0], shard(0, keys=(LLAMA,))),
    (NAMES[1], shard(1)),
    (NAMES[2], shard(2)),
)


def refusal(*headers: tuple[str, Header]) -> str:
    with pytest.raises(InputError) as caught:
        check_split(headers)
    return str(caught.value)


def test_a_shard_s_name_gives_all_names() -> None:
    assert shard_names("m-00002-of-00003.gguf") == NAMES
    assert shard_names("dir-00001-of-00002.gguf/ünï 🦙-00001-of-00001.gguf") == (
        "dir-00001-of-00002.gguf/ünï 🦙-00001-of-00001.gguf",
    )
    assert shard_names("a/m-00003-of-00003.gguf") == tuple(f"a/{name}" for name in NAMES)


@pytest.mark.parametrize(
    "name", ["m.gguf", "m-1-of-3.gguf", "m-00001-of-00003.gguf.part", "m-0000１-of-00003.gguf", ""]
)
def test_another_name_stands_alone(name: str) -> None:
    assert shard_names(name) == (name,)


@pytest.mark.parametrize(
    "name, no, count", [("m-00004-of-00003.gguf", 4, 3), ("m-00000-of-00000.gguf", 0, 0)]
)
def test_a_name_beyond_its_own_total_is_refused(name: str, no: int, count: int) -> None:
    with pytest.raises(InputError) as caught:
        shard_names(name)
    assert str(caught.value) == f"the name `{name}` is shard `{no}` of `{count}`, expected `1` to `{count}`"


def test_a_shard_says_what_it_is() -> None:
    assert split_of(WHOLE[1][1]) == Split(no=1, count=3, tensors_count=3)
    assert split_of(shard(1, total=None)) == Split(no=1, count=3, tensors_count=UNSET)
    assert split_of(header_of([LLAMA])) is UNSET


@pytest.mark.parametrize(
    "keys, message",
    [
        ([make.kv("split.count", make.U16, 3)], "`split.no` is absent, expected a whole number"),
        ([make.kv("split.no", make.U16, 0)], "`split.count` is absent, expected a whole number"),
        ([make.kv("split.no", make.I32, -1)], "`split.no` is `-1`, expected a whole number"),
        ([make.kv("split.no", make.BOOL, 1)], "`split.no` is `True`, expected a whole number"),
        ([make.kv("split.no", make.F32, 1.0)], "`split.no` is `1.0`, expected a whole number"),
        (
            [make.array("split.tensors.count", make.I32, [3])],
            "`split.tensors.count` is an array of i32, expected a whole number",
        ),
    ],
)
def test_a_shard_that_says_it_badly_is_refused(keys: list[bytes], message: str) -> None:
    with pytest.raises(InputError) as caught:
        split_of(header_of(keys))
    assert str(caught.value) == message


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_whole_set_passes_in_any_order(order: tuple[int, ...]) -> None:
    check_split(tuple(WHOLE[place] for place in order))


def test_one_file_passes() -> None:
    check_split((("m.gguf", header_of([LLAMA], ("a",))),))
    check_split((("m-00001-of-00001.gguf", header_of([LLAMA], ("a",))),))
    check_split((("m-00001-of-00001.gguf", header_of([LLAMA, *split_keys(0, 1, 1)], ("a",))),))


def test_missing_shards_are_named() -> None:
    assert refusal(WHOLE[0], WHOLE[2]) == "shard `m-00002-of-00003.gguf` is missing"
    assert (
        refusal(WHOLE[1])
        == "shard `m-00001-of-00003.gguf` is missing; shard `m-00003-of-00003.gguf` is missing"
    )


def test_a_shard_given_twice_is_named() -> None:
    assert refusal(*WHOLE, WHOLE[1]) == (
        "`m-00002-of-00003.gguf` is given twice; "
        "`m-00002-of-00003.gguf` has the same `split.no` `1` as `m-00002-of-00003.gguf`"
    )


def test_a_shard_of_another_set_is_named() -> None:
    assert refusal(*WHOLE[:2], ("n-00003-of-00003.gguf", shard(2))) == (
        "shard `m-00003-of-00003.gguf` is missing; `n-00003-of-00003.gguf` is no shard of `m-00001-of-00003.gguf`"
    )


def test_a_copy_of_a_shard_under_another_s_name_is_named() -> None:
    assert refusal(*WHOLE[:2], (NAMES[2], shard(1))) == (
        "`m-00003-of-00003.gguf` has the same `split.no` `1` as `m-00002-of-00003.gguf`"
    )


def test_a_number_that_is_not_the_name_s_is_named() -> None:
    assert refusal(WHOLE[0], (NAMES[1], shard(2)), (NAMES[2], shard(1))) == (
        "`m-00002-of-00003.gguf` has `split.no` `2`, expected `1`; "
        "`m-00003-of-00003.gguf` has `split.no` `1`, expected `2`"
    )


def test_a_count_that_is_not_the_name_s_is_named() -> None:
    assert refusal(*WHOLE[:2], (NAMES[2], shard(2, count=4))) == (
        "`m-00003-of-00003.gguf` has `split.count` `4`, expected `3`"
    )


def test_a_renamed_shard_is_no_whole_model() -> None:
    assert refusal(("model.gguf", WHOLE[0][1])) == "`model.gguf` has `split.count` `3`, expected `1`"


def test_a_file_that_is_no_shard_is_named() -> None:
    assert (
        refusal(*WHOLE[:2], (NAMES[2], header_of([LLAMA], ("c",))))
        == "`m-00003-of-00003.gguf` has no `split.count`"
    )


def test_a_bad_key_is_named_with_its_file() -> None:
    broken = header_of([make.kv("split.no", make.STRING, "x")])
    assert refusal(*WHOLE[:2], (NAMES[2], broken)) == (
        "`m-00003-of-00003.gguf`: `split.no` is `x`, expected a whole number"
    )


def test_totals_that_do_not_add_up_are_named() -> None:
    assert refusal(*WHOLE[:2], (NAMES[2], shard(2, total=4))) == (
        "`m-00003-of-00003.gguf` has `split.tensors.count` `4`, the shards have `3`"
    )
    check_split((*WHOLE[:2], (NAMES[2], shard(2, total=None))))


def test_a_tensor_in_two_shards_is_named() -> None:
    assert refusal(*WHOLE[:2], (NAMES[2], shard(2, "b"))) == (
        "tensor `b` is in `m-00002-of-00003.gguf` and in `m-00003-of-00003.gguf`"
    )


def test_a_shard_of_another_model_is_named() -> None:
    assert refusal(*WHOLE[:2], (NAMES[2], shard(2, keys=(QWEN,)))) == (
        "`m-00003-of-00003.gguf` is of another model than `m-00001-of-00003.gguf`: its `general.architecture` differs"
    )
    check_split((*WHOLE[:2], (NAMES[2], shard(2, keys=(LLAMA, make.kv("general.alignment", make.U32, 32))))))


def test_many_problems_are_counted() -> None:
    names = shard_names("m-00001-of-00025.gguf")
    assert refusal((names[0], shard(0, count=25, total=1))) == (
        "; ".join(f"shard `{name}` is missing" for name in names[1:21]) + "; and 4 more"
    )


def test_a_set_packed_elsewhere_passes(shared_cases: Path) -> None:
    headers = []
    for path in sorted((shared_cases / "gguf" / "split").iterdir()):
        header = read_header(path.read_bytes(), path.stat().st_size)
        assert isinstance(header, Header)
        headers.append((path.name, header))
    check_split(tuple(headers))
    assert refusal(headers[0], headers[2]) == "shard `m-00002-of-00003.gguf` is missing"


# ---- laws


@given(name=st.text(max_size=30) | st.from_regex(r".{0,5}-0000[0-3]-of-0000[0-3]\.gguf", fullmatch=True))
def test_law_every_shard_of_a_set_names_the_same_set(name: str) -> None:
    try:
        names = shard_names(name)
    except InputError:
        return
    assert name in names
    assert {shard_names(each) for each in names} == {names}


@given(dropped=st.sets(st.integers(0, 2), min_size=1, max_size=2))
def test_law_whatever_is_missing_is_named(dropped: set[int]) -> None:
    left = tuple(pair for place, pair in enumerate(WHOLE) if place not in dropped)
    assert refusal(*left) == "; ".join(f"shard `{NAMES[place]}` is missing" for place in sorted(dropped))
