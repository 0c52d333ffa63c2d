from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qlock.core.quants import choose, is_companion, models_of, quant_of
from qlock.errors import InputError

# Names as publishers give them: one folder per quant where it is split, `UD-` for a mixed recipe, companions beside.
REPOSITORY = (
    ".gitattributes",
    "BF16/Q-8B-BF16-00001-of-00002.gguf",
    "BF16/Q-8B-BF16-00002-of-00002.gguf",
    "Q-8B-IQ4_XS.gguf",
    "Q-8B-Q4_K_M.gguf",
    "Q-8B-Q4_K_S.gguf",
    "Q-8B-UD-IQ2_M.gguf",
    "Q-8B-UD-Q4_K_XL.gguf",
    "README.md",
    "UD-Q8_K_XL/Q-8B-UD-Q8_K_XL-00001-of-00003.gguf",
    "UD-Q8_K_XL/Q-8B-UD-Q8_K_XL-00002-of-00003.gguf",
    "config.json",
    "imatrix_unsloth.gguf",
    "mmproj-BF16.gguf",
    "mmproj-F16.gguf",
)


def chosen(wanted: str, paths: Sequence[str] = REPOSITORY) -> tuple[str, ...]:
    return choose(paths, wanted, repository="a/b")


def refused(wanted: str, paths: Sequence[str] = REPOSITORY) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        chosen(wanted, paths)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    "wanted, files",
    [
        ("Q4_K_M", ["Q-8B-Q4_K_M.gguf"]),
        ("q4_k_m", ["Q-8B-Q4_K_M.gguf"]),
        ("UD-Q4_K_XL", ["Q-8B-UD-Q4_K_XL.gguf"]),
        ("BF16", ["BF16/Q-8B-BF16-00001-of-00002.gguf", "BF16/Q-8B-BF16-00002-of-00002.gguf"]),
        ("*IQ4*", ["Q-8B-IQ4_XS.gguf"]),
        ("BF16/*", ["BF16/Q-8B-BF16-00001-of-00002.gguf", "BF16/Q-8B-BF16-00002-of-00002.gguf"]),
        ("*F16*.gguf", ["BF16/Q-8B-BF16-00001-of-00002.gguf", "BF16/Q-8B-BF16-00002-of-00002.gguf"]),
        ("Q-8B-Q4_K_S.gguf", ["Q-8B-Q4_K_S.gguf"]),
        (
            "BF16/Q-8B-BF16-00002-of-00002.gguf",
            ["BF16/Q-8B-BF16-00001-of-00002.gguf", "BF16/Q-8B-BF16-00002-of-00002.gguf"],
        ),
        ("mmproj-F16.gguf", ["mmproj-F16.gguf"]),
        ("imatrix_unsloth.gguf", ["imatrix_unsloth.gguf"]),
    ],
)
def test_a_model_is_chosen_by_quant_pattern_or_path(wanted: str, files: list[str]) -> None:
    assert chosen(wanted) == tuple(files)


def test_a_quant_that_is_not_there_is_refused_with_what_is() -> None:
    has = "`BF16`, `IQ4_XS`, `Q4_K_M`, `Q4_K_S`, `UD-IQ2_M`, `UD-Q4_K_XL`, `UD-Q8_K_XL`"
    assert refused("IQ2_M") == ("`IQ2_M` names no model of `a/b`", f"it has {has}")
    assert refused("F16") == ("`F16` names no model of `a/b`", f"it has {has}")
    assert refused("K_M") == ("`K_M` names no model of `a/b`", f"it has {has}")


def test_a_misspelt_path_is_refused_with_the_nearest() -> None:
    assert refused("Q-8B-Q4_KM.gguf") == (
        "`Q-8B-Q4_KM.gguf` names no model of `a/b`",
        "did you mean `Q-8B-Q4_K_M.gguf`?",
    )


def test_several_models_are_refused_by_name() -> None:
    assert refused("*Q4_K*") == (
        "`*Q4_K*` names 3 models of `a/b`: `Q-8B-Q4_K_M.gguf`, `Q-8B-Q4_K_S.gguf`, `Q-8B-UD-Q4_K_XL.gguf`",
        "name one of these files",
    )


def test_many_models_are_counted() -> None:
    paths = [f"m{number:02d}-Q4_0.gguf" for number in range(14)]
    first = ", ".join(f"`{path}`" for path in paths[:12])
    assert refused("Q4_0", paths)[0] == f"`Q4_0` names 14 models of `a/b`: {first} and 2 more"


def test_a_missing_shard_is_refused_by_name() -> None:
    assert refused("UD-Q8_K_XL") == (
        "`a/b` lacks 1 of 3 shards: `UD-Q8_K_XL/Q-8B-UD-Q8_K_XL-00003-of-00003.gguf`",
        "",
    )


def test_a_repository_without_models_says_so() -> None:
    assert refused("Q4_0", ["model.safetensors", "mmproj-F16.gguf"]) == (
        "`Q4_0` names no model of `a/b`",
        "it has no model in GGUF",
    )


@pytest.mark.parametrize(
    "path, quant",
    [
        ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
        ("Qwen2_5-7B-Instruct_Q4_K_M.gguf", "Q4_K_M"),
        ("Model.i1-IQ3_XXS.gguf", "IQ3_XXS"),
        ("Model.Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("Phi-3-mini-4k-instruct-q4.gguf", "q4"),
        ("Q3-14B-Q4_K_M-v2.gguf", "Q4_K_M"),
        ("Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M"),
        ("mxfp4-model-Q8_0.gguf", "Q8_0"),
        ("model-ternary.gguf", ""),
        ("Qwen3-8B.gguf", ""),
        ("TQ1_0.gguf", "TQ1_0"),
    ],
)
def test_a_name_says_its_quant(path: str, quant: str) -> None:
    assert quant_of(path) == quant


def test_a_name_of_an_unknown_kind_of_quant_is_found_by_its_last_part() -> None:
    assert chosen("ternary", ["m-ternary.gguf", "m-Q4_0.gguf"]) == ("m-ternary.gguf",)


@pytest.mark.parametrize(
    "path, companion",
    [
        ("mmproj-BF16.gguf", True),
        ("Model-mmproj-f16.gguf", True),
        ("mmproj/model-f16.gguf", True),
        ("imatrix.gguf", True),
        ("Model.imatrix.gguf", True),
        ("imatrix-Q4_K_M.gguf", True),
        ("Model-imatrix-Q4_K_M.gguf", False),
        ("Model-Q4_K_M-imat.gguf", False),
    ],
)
def test_a_companion_is_known_by_its_name(path: str, *, companion: bool) -> None:
    assert is_companion(path) is companion


_NAMES = st.from_regex(r"\A(UD-)?(IQ|Q)[1-8](_K)?(_(XS|S|M|L|XL))?\Z")


@given(_NAMES, _NAMES)
@example("Q4_K_M", "UD-Q4_K_M")
def test_a_quant_names_itself_and_no_other(name: str, other: str) -> None:
    paths = [f"m-{name}.gguf", "mmproj-F16.gguf", "imatrix.gguf"]
    assert chosen(name, paths) == (paths[0],)
    if other != name:
        with pytest.raises(InputError, match=re.escape(f"`{other}` names no model of `a/b`")):
            chosen(other, paths)


@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=20))
def test_any_listing_gives_files_of_it_or_a_refusal(paths: list[str], wanted: str) -> None:
    try:
        found = choose(paths, wanted, repository="a/b")
    except InputError:
        return
    assert set(found) <= set(paths)


@given(st.permutations(REPOSITORY))
def test_the_order_of_the_listing_does_not_matter(paths: list[str]) -> None:
    assert models_of(paths) == models_of(REPOSITORY)
    assert chosen("BF16", paths) == chosen("BF16")
