from __future__ import annotations

from collections.abc import Callable

import pytest

from qlock.core.facts import Buffer
from qlock.engines.llama_cpp_python.logbook import (
    LogBook,
    buffers,
    cache_types,
    devices,
    flash_attention,
    layers,
    of_cache,
    of_weights,
)
from qlock.errors import EngineError

CACHE = "llama_kv_cache: size =  568.48 MiB (  8448 cells,  30 layers,  4/4 seqs), K (f16):  371.25 MiB, V (q8_0):  197.23 MiB"


def test_pieces_are_joined_until_their_newline() -> None:
    book = LogBook()
    for piece in ("one ", "two\nthree", "\nfour"):
        book.hear(piece, is_error=False)
    assert book.lines() == ("one two", "three")


def test_errors_are_kept_in_one_line() -> None:
    book = LogBook()
    book.hear("fine\n", is_error=False)
    book.hear("no such file\n", is_error=True)
    book.hear("  failed to load\n", is_error=True)
    assert book.complaint() == "no such file; failed to load"


def test_a_mark_forgets() -> None:
    book = LogBook()
    book.hear("old\nhalf", is_error=True)
    book.mark()
    assert (book.lines(), book.complaint()) == ((), "")
    book.hear("new\n", is_error=False)
    assert book.lines() == ("new",)


def test_a_flood_is_bounded() -> None:
    book = LogBook()
    for number in range(30_000):
        book.hear(f"{number}\n", is_error=False)
    assert (len(book.lines()), book.lines()[0]) == (20_000, "0")


def test_cache_types_are_read_from_the_cache_itself() -> None:
    assert cache_types(["other", CACHE]) == ("f16", "q8_0")


def test_several_caches_of_one_kind_are_one_fact() -> None:
    assert cache_types([CACHE, CACHE.replace("30 layers", "5 layers")]) == ("f16", "q8_0")


@pytest.mark.parametrize("word, on", [("enabled", True), ("disabled", False)])
def test_flash_attention_is_read(word: str, on: bool) -> None:  # noqa: FBT001  # a parameter of the table above
    assert flash_attention([f"llama_context: flash_attn            = {word}"]) is on


def test_buffers_are_added_up_by_place_and_use_and_the_largest_plan_to_compute_counts() -> None:
    lines = [
        "load_tensors:   CPU_Mapped model buffer size =    98.87 MiB",
        "load_tensors:   CPU_Mapped model buffer size =     1.13 MiB",
        "load_tensors:        CUDA0 model buffer size =   100.00 MiB",
        "llama_context:  CUDA_Host  output buffer size =     1.50 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =   180.00 MiB",
        "llama_kv_cache: size =  180.00 MiB (  1024 cells,  30 layers,  8/8 seqs), K (f16):   90.00 MiB",
        "sched_reserve:      CUDA0 compute buffer size =    98.25 MiB",
        "sched_reserve:      CUDA0 compute buffer size =    10.00 MiB",
        "x: CUDA0 DSV4 last state buffer size = 2.00 MiB",
    ]
    mib = 1 << 20
    assert buffers(lines) == (
        Buffer(place="CPU_Mapped", use="model", size_bytes=100 * mib),
        Buffer(place="CUDA0", use="model", size_bytes=100 * mib),
        Buffer(place="CUDA_Host", use="output", size_bytes=3 * mib // 2),
        Buffer(place="CUDA0", use="KV", size_bytes=180 * mib),
        Buffer(place="CUDA0", use="compute", size_bytes=393 * mib // 4),
        Buffer(place="CUDA0", use="DSV4 last state", size_bytes=2 * mib),
    )
    assert buffers(["load_tensors: offloaded 29/33 layers to GPU"]) == ()


def test_layers_are_counted_where_they_were_put() -> None:
    lines = [f"load_tensors: layer {number:3} assigned to device CPU, is_swa = 0" for number in range(2)]
    lines += [
        f"load_tensors: layer {number:3} assigned to device CUDA0, is_swa = 0" for number in range(2, 5)
    ]
    assert layers(lines) == (5, 3)


def test_without_the_single_layers_the_summary_counts() -> None:
    assert layers(["load_tensors: offloaded 29/33 layers to GPU"]) == (33, 29)


@pytest.mark.parametrize(
    "read, lines, message",
    [
        (
            cache_types,
            [],
            "cannot verify `cache_type_k` and `cache_type_v`: got no line about it in the engine's log, expected one",
        ),
        (
            cache_types,
            [CACHE, CACHE.replace("q8_0", "f16")],
            "cannot verify `cache_type_k` and `cache_type_v`: got lines that differ in the engine's log, expected one",
        ),
        (
            flash_attention,
            [],
            "cannot verify `flash_attention`: got no line about it in the engine's log, expected one",
        ),
        (
            flash_attention,
            ["llama_context: flash_attn            = auto"],
            "cannot verify `flash_attention`: got `auto`, expected `enabled` or `disabled`",
        ),
        (
            layers,
            [],
            "cannot verify `layers_offloaded`: got no line about it in the engine's log, expected one",
        ),
    ],
)
def test_what_is_not_said_once_cannot_be_verified(read: object, lines: list[str], message: str) -> None:
    assert callable(read)
    with pytest.raises(EngineError) as caught:
        read(lines)
    assert caught.value.message == message


USING = "llama_prepare_model_devices: using device "


@pytest.mark.parametrize(
    "line, device",
    [
        ("CUDA0 (NVIDIA A100-SXM4-40GB) (0000:07:00.0) - 39900 MiB free", "0000:07:00.0"),
        ("CUDA1 (NVIDIA L4) (00000000:0F:00.0) - 22478 MiB free", "0000:0f:00.0"),
        ("Vulkan0 (AMD Radeon RX 6800 (RADV NAVI21)) (0000:03:00.0) - 16368 MiB free", "0000:03:00.0"),
        ("ROCm0 (AMD (TM) Radeon (TM) x) (0000:c3:00.0) - 16368 MiB free", "0000:c3:00.0"),
        ("SYCL0 (Intel(R) Arc(TM) A770) (unknown id) - 15473 MiB free", "SYCL0"),
        ("MTL0 (Apple M2) (id-of-metal) - 10922 MiB free", "MTL0"),
        ("CUDA0 (NVIDIA L4) (0000:07:00.0-v1) - 22478 MiB free", "CUDA0"),
        ("CUDA0 (NVIDIA L4) - 22478 MiB free", "CUDA0"),
        ("Vulkan0 (Radeon (TM)) - 5 MiB free", "Vulkan0"),
    ],
)
def test_a_device_is_its_pci_address_where_it_is_told(line: str, device: str) -> None:
    assert devices(["other", USING + line, "0.00.002 I " + USING + line]) == (device,)


def test_devices_keep_their_order_and_the_cpu_is_none() -> None:
    second, first = (f"{USING}CUDA{n} (L4) (0000:0{n}:00.0) - 5 MiB free" for n in (2, 1))
    skipped = (
        "skipping device Vulkan0 (L4) with id 0000:01:00.0 - already using device CUDA1 (L4) with the same id"
    )
    assert devices([second, f"llama_prepare_model_devices: {skipped}", first]) == (
        "0000:02:00.0",
        "0000:01:00.0",
    )
    assert devices([]) == ()


MEMORY = (
    Buffer(place="CUDA0", use="model", size_bytes=3),
    Buffer(place="CUDA0", use="RS", size_bytes=1),
    Buffer(place="CPU_Mapped", use="model", size_bytes=2),
    Buffer(place="CPU", use="KV", size_bytes=5),
    Buffer(place="CUDA0", use="compute", size_bytes=7),
)


def test_where_weights_and_cache_lie_is_sorted_by_place() -> None:
    assert of_weights(MEMORY) == (MEMORY[2], MEMORY[0])
    assert of_cache(MEMORY) == (MEMORY[3], MEMORY[1])


@pytest.mark.parametrize("read, fact", [(of_weights, "weights_buffer"), (of_cache, "cache_buffer")])
def test_memory_that_is_not_told_cannot_be_verified(
    read: Callable[[tuple[Buffer, ...]], object], fact: str
) -> None:
    with pytest.raises(EngineError) as caught:
        read(MEMORY[-1:])
    assert caught.value.message == (
        f"cannot verify `{fact}`: got no line about it in the engine's log, expected one"
    )
