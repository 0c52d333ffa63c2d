import msgspec
import pytest

from qlock.core.facts import Buffer
from qlock.core.memory import is_on_card, memory_bytes
from qlock.core.stats import CannotTell
from tests.fakes.comparisons import a_card_lock, a_side

replace = msgspec.structs.replace
BUFFERS = (
    Buffer(place="CPU_Mapped", use="model", size_bytes=1),
    Buffer(place="CUDA0", use="model", size_bytes=20),
    Buffer(place="CUDA1", use="KV", size_bytes=300),
    Buffer(place="CUDA_Host", use="compute", size_bytes=4_000),
)


def test_without_cards_every_buffer_counts() -> None:
    assert memory_bytes(a_side(memory=BUFFERS)) == 4_321


def test_with_cards_what_lies_on_them_counts() -> None:
    side = a_side(model="Q4_K_M", lock=a_card_lock(), memory=BUFFERS)
    assert memory_bytes(side) == 320
    assert memory_bytes(replace(side, memory=BUFFERS[:1])) == 0


def test_no_account_is_unknown_and_not_nothing() -> None:
    assert memory_bytes(a_side()) == CannotTell(why="the run has no account of the engine's buffers")


@pytest.mark.parametrize(
    "place, is_card",
    [
        ("CPU", False),
        ("CPU_Mapped", False),
        ("CPU_REPACK", False),
        ("AMX", False),
        ("BLAS", False),
        ("CUDA_Host", False),
        ("Host", False),
        ("CUDA0", True),
        ("CUDA0_Split", True),
        ("ROCm1", True),
        ("Vulkan0", True),
        ("SYCL_Host", False),
        ("MTL0_Mapped", True),
    ],
)
def test_which_places_are_cards(place: str, *, is_card: bool) -> None:
    assert is_on_card(Buffer(place=place, use="model", size_bytes=1)) is is_card
