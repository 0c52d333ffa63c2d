"""Which of AMD's cards the environment leaves to a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.visible import Card
from qlock.core.visible_amd import visible_amd
from qlock.errors import InputError


def card(place: int, uuid: str = "") -> Card:
    return Card(uuid=uuid, card_uuid=uuid, instance="", pci_bus_id=f"0000:0{place}:00.0", make="a card")


FIRST, SECOND, THIRD = card(1, "GPU-aa"), card(2), card(3, "GPU-cc")
CARDS = (FIRST, SECOND, THIRD)
"""KFD knows the first two."""


def left(**environment: str) -> tuple[Card, ...]:
    return visible_amd(CARDS, 2, environment).cards


def test_without_a_variable_every_card_is_left() -> None:
    assert left() == CARDS
    assert visible_amd(CARDS, 2, {}).why_not_more == ""


@pytest.mark.parametrize(
    "text, cards",
    [
        ("", ()),
        ("-1", ()),
        ("0", (FIRST,)),
        ("1,0", (SECOND, FIRST)),
        (" 1 , GPU-AA ", (SECOND, FIRST)),
        ("GPU-aa,9,1", (FIRST,)),
        ("0,0,1", (FIRST,)),
        # A card that KFD does not know has no number, and no name to ROCm.
        ("2", ()),
        ("GPU-cc", ()),
        ("GPU-", ()),
        ("0.0", ()),
    ],
)
def test_a_list_names_cards_by_number_or_by_uuid(text: str, cards: tuple[Card, ...]) -> None:
    assert left(ROCR_VISIBLE_DEVICES=text) == cards


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_hip_counts_what_rocr_leaves(name: str) -> None:
    assert left(**{"ROCR_VISIBLE_DEVICES": "1,0", name: "0"}) == (SECOND,)
    assert left(**{name: "1"}) == (SECOND,)


def test_hips_own_variable_goes_before_that_of_cuda() -> None:
    assert left(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="GPU-of-nvidia") == (FIRST,)
    assert left(CUDA_VISIBLE_DEVICES="GPU-of-nvidia") == ()


def test_what_left_cards_out_is_said() -> None:
    found = visible_amd(CARDS, 2, {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0\x1b"})
    assert found.why_not_more == r"ROCR_VISIBLE_DEVICES is `0` and HIP_VISIBLE_DEVICES is `0\x1b`"
    assert visible_amd(CARDS[:2], 2, {"ROCR_VISIBLE_DEVICES": "0,1"}).why_not_more == ""


def test_an_absurd_list_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        left(ROCR_VISIBLE_DEVICES="0," * 40_000)
    assert (str(caught.value), caught.value.hint) == (
        "got `ROCR_VISIBLE_DEVICES` of 80000 characters, expected at most 65536",
        "unset ROCR_VISIBLE_DEVICES",
    )


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_card_is_left_twice_and_none_is_made_up(rocr: str, hip: str) -> None:
    found = left(ROCR_VISIBLE_DEVICES=rocr, HIP_VISIBLE_DEVICES=hip)
    assert len(set(found)) == len(found)
    assert set(found) <= set(CARDS[:2])
