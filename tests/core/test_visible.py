"""`CUDA_VISIBLE_DEVICES` in all its forms: which cards are left, by UUID, and no number is taken for another card's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.visible import Card, bus_address, bus_text, visible
from qlock.errors import InputError


def a_card(uuid: str, bus: str, make: str = "A100", *, of: str = "", instance: str = "") -> Card:
    return Card(uuid=uuid, card_uuid=of or uuid, instance=instance, pci_bus_id=bus, make=make)


A = a_card("GPU-aaaa1111-0000-4000-8000-000000000001", "00000000:07:00.0")
B = a_card("GPU-aaaa2222-0000-4000-8000-000000000002", "00000000:0F:00.0")
C = a_card("GPU-cccc3333-0000-4000-8000-000000000003", "00000001:01:00.0")
S1 = a_card("MIG-11110000-0000-4000-8000-000000000011", B.pci_bus_id, of=B.uuid, instance="7/0")
S2 = a_card("MIG-22220000-0000-4000-8000-000000000012", B.pci_bus_id, of=B.uuid, instance="2/0")
CARDS = (C, A, B)
"""Not in the order of their addresses, as NVML may give them."""
SLICED = (A, S1, S2, C)


def left(text: str | None, cards: tuple[Card, ...] = CARDS, **more: str) -> tuple[Card, ...]:
    environment = more if text is None else {"CUDA_VISIBLE_DEVICES": text, **more}
    return visible(cards, environment).cards


@pytest.mark.parametrize(
    "text, cards",
    [
        (None, (A, B, C)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", (A,)),
        ("2", (C,)),
        (" 1 , 0 ", (B, A)),
        ("0,2,-1,1", (A, C)),
        ("0,7,1", (A,)),
        ("1,1", ()),
        ("0,GPU-aaaa1111", ()),
        ("0x1", ()),
        ("²", ()),
        ("99999999999999999999", ()),
        (B.uuid, (B,)),
        (B.uuid.upper(), (B,)),
        ("GPU-cccc", (C,)),
        ("GPU-aaaa2", (B,)),
        ("GPU-aaaa", ()),
        ("GPU-dddd", ()),
        ("cccc3333", ()),
        (f"0,{C.uuid}", (A, C)),
        (f"{C.uuid},{A.uuid}", (C, A)),
        (f"{C.uuid},GPU-dddd,{A.uuid}", (C,)),
        ("0,", (A,)),
        (",0", ()),
    ],
)
def test_every_form_of_the_list(text: str | None, cards: tuple[Card, ...]) -> None:
    assert left(text) == cards


@pytest.mark.parametrize(
    "text, cards",
    [
        (None, (A, S1, S2, C)),
        (S2.uuid, (S2,)),
        ("MIG-2222", (S2,)),
        ("MIG-", ()),
        (f"MIG-{B.uuid}/2/0", (S2,)),
        (f"MIG-{B.uuid}/7/0", (S1,)),
        (f"MIG-{B.uuid}/9/9", ()),
        (f"MIG-{A.uuid}/7/0", ()),
        ("1", (S1,)),
        ("2", (C,)),
        (B.uuid, (S1,)),
        (A.uuid, (A,)),
        (f"MIG-{A.uuid}", ()),
    ],
)
def test_slices_of_a_card(text: str | None, cards: tuple[Card, ...]) -> None:
    assert left(text, SLICED) == cards


def test_what_leaves_cards_out_is_said() -> None:
    assert visible(CARDS, {}).why_not_more == ""
    assert visible(CARDS, {"CUDA_VISIBLE_DEVICES": "0,1,2"}).why_not_more == ""
    assert visible(CARDS, {"CUDA_VISIBLE_DEVICES": ""}).why_not_more == "CUDA_VISIBLE_DEVICES is ``"
    assert (
        visible(CARDS, {"CUDA_VISIBLE_DEVICES": "0\x1b[2K"}).why_not_more
        == r"CUDA_VISIBLE_DEVICES is `0\x1b[2K`"
    )


MIXED = (A, B, msgspec.structs.replace(C, make="T4"))


@pytest.mark.parametrize("text, number", [("0", "0"), (f"{B.uuid},2", "2")])
def test_numbers_mean_nothing_where_the_cards_differ(text: str, number: str) -> None:
    with pytest.raises(InputError) as caught:
        left(text, MIXED)
    assert str(caught.value) == (
        f"got the number `{number}` in `CUDA_VISIBLE_DEVICES` while the cards differ, and CUDA counts them by speed"
    )
    assert caught.value.hint == ("set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name cards by UUID (`nvidia-smi -L`)")


def test_numbers_that_name_every_card_or_count_by_address_mean_something() -> None:
    assert left("2,0,1", MIXED) == (MIXED[2], A, B)
    assert left("2", MIXED, CUDA_DEVICE_ORDER="PCI_BUS_ID") == (MIXED[2],)
    assert left(B.uuid, MIXED) == (B,)
    assert left("-1", MIXED) == ()


def test_a_list_without_end_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        left("0," * 40_000)
    assert str(caught.value) == ("got `CUDA_VISIBLE_DEVICES` of 80000 characters, expected at most 65536")
    assert caught.value.hint == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize("text", ["00000000:18:00.0", "0000:18:00.0", "18:00.0", "0000:18:00", " 0:18:0.0 "])
def test_one_address_in_all_spellings(text: str) -> None:
    assert bus_address(text) == (0, 0x18, 0, 0)


@pytest.mark.parametrize("text", ["", "18", "0000:18:00.9", "123456789:18:00.0", "\x1b:0"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError) as caught:
        bus_address(text)
    shown = text.replace("\x1b", r"\x1b")
    assert str(caught.value) == f"got `{shown}`, expected a PCI address such as `0000:18:00.0`"


ENTRIES = st.one_of(
    st.sampled_from([*(card.uuid for card in SLICED), "0", "1", "-1", "GPU-", "MIG-1", f"MIG-{B.uuid}/7/0"]),
    st.text(max_size=6),
)


@given(st.lists(ENTRIES, max_size=4).map(",".join))
def test_any_text_leaves_cards_that_are_there_each_once(text: str) -> None:
    cards = left(text, SLICED)
    assert set(cards) <= set(SLICED)
    assert len(set(cards)) == len(cards)


@given(st.permutations(SLICED), st.lists(ENTRIES, max_size=4).map(",".join))
def test_the_drivers_order_of_cards_does_not_matter_but_among_slices_of_one(
    cards: list[Card], text: str
) -> None:
    if cards.index(S1) < cards.index(S2):
        assert left(text, tuple(cards)) == left(text, SLICED)


@pytest.mark.parametrize("text", ["00000000:0F:00.0", "0f:00", "0000:0f:00.0", " 0:F:0.0 "])
def test_an_address_has_one_spelling(text: str) -> None:
    assert bus_text(text) == "0000:0f:00.0"
    assert bus_address(bus_text(text)) == bus_address(text)
