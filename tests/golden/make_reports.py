"""Golden reports, in every way to show one: a comparison that has something in every part, an invalid one, one through a
bridge, one of distances from a reference, and a ladder of several.

`python -m tests.golden.make` writes them with the other golden files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.core.exchange import Completed
from qlock.core.facts import Buffer
from qlock.core.ladder import Ladder, ladder
from qlock.core.lock import Lock
from qlock.core.rules import Kld, MemoryAtMost, NoMoreErrors, NonInferior, SpeedAtLeast
from qlock.core.sides import Side, Sitting
from qlock.flows.kinds import members
from tests.fakes.comparisons import (
    a_crossing,
    a_distance,
    a_plain_lock,
    a_reading,
    a_side,
    a_sitting,
    varying,
    with_first,
)
from tests.fakes.documents import a_model, a_point, with_kld

HOSTILE = (
    "\x1b[2K\rALL SAMPLES PASSED\x07 <img src=x onerror=alert(1)> | `x` [link](http://evil.example) \u202egnp"
)

replace = msgspec.structs.replace


@cache
def a_comparison() -> Comparison:
    """A valid comparison with lost items, a measured noise floor, flips, gates and hostile answers."""
    gates = (
        NonInferior(suite="orders", margin_share=0.2),
        NoMoreErrors(suite="orders", slice="north"),
        NonInferior(suite="orders", slice="third=0", margin_share=0.01),
    )
    lock = varying(a_plain_lock(gate=gates))
    row = lock.model[0].recipe[1]
    lock = with_first(
        lock,
        model={
            "warnings": (),
            "bits_per_weight": 16.0,
            "recipe": (lock.model[0].recipe[0], replace(row, type="F16", bytes=268_959_744)),
        },
    )
    a = a_side("r" * 90 + "w" * 17 + "uuu" + "bb" + "rxr", lock=lock)
    b = a_side("r" * 84 + "w" * 6 + "r" * 7 + "w" * 10 + "uru" + "bb" + "cx.", model="Q4_K_M", lock=lock)
    reading = [300.0 + 7 * (index % 5) for index in range(40)]
    worse = [cost + 1.5 + 0.25 * (index % 7) for index, cost in enumerate(reading)]
    a = replace(a, sittings={**a.sittings, "wikitext": (a_reading(reading),)})
    b = replace(b, sittings={"orders": (_hostile(b),), "wikitext": (a_reading(worse),)})
    again = replace(a, sittings={"orders": (a_sitting("r" * 89 + "w" * 18 + "uuu" + "bb" + "rxr"),)})
    return compare(a, b, again_a=again)


def an_invalid_comparison() -> Comparison:
    """The same exam on another machine, with another template."""
    lock = a_plain_lock()
    elsewhere = with_first(lock, device={"cpu_model": "Intel Xeon"}, setting={"cache_type_k": "q8_0"})
    return compare(
        a_side("r" * 20, lock=lock), a_side("r" * 15 + "w" * 5, lock=elsewhere, name="runs/later:F16@f16kv")
    )


def a_bridged_comparison() -> Comparison:
    """A quant on cards and an original that does not fit them."""
    a, here, there, b = a_crossing(
        "r" * 36 + "w" * 4, "r" * 35 + "w" * 5, "r" * 35 + "w" * 4 + "e", "r" * 30 + "w" * 10
    )
    return compare(a, b, through=(here, there))


def a_distance_comparison() -> Comparison:
    """A quant beside the original on a text that is about the distance between them."""
    lock = with_kld(varying(a_plain_lock(suite=())))
    apart = [0.02 + 0.003 * (index % 4) for index in range(40)]
    return compare(
        a_side(lock=lock, sittings={"distance": (a_distance([0.0] * 40),)}),
        a_side(lock=lock, model="Q4_K_M", sittings={"distance": (a_distance(apart),)}),
    )


_QUANTS = {
    "F16": (16.0, 270_900_000),
    "Q8_0": (8.5, 144_800_000),
    "Q4_K_M": (4.85, 105_500_000),
    "Q2_K": (3.4, 70_000_000),
}
"""Bits per weight and bytes of the models on the ladder."""


def a_ladder() -> Ladder:
    """Three quants beside the original in an exam, a text and a distance, with gates of every kind, speed and memory."""
    lock = _ladder_lock()
    reading = [300.0 + 7 * (index % 5) for index in range(40)]
    sides = [
        a_side(
            lock=lock,
            model=model,
            sittings={
                "distance": (a_distance([far + far * (index % 4) / 8 for index in range(40)]),),
                "wikitext": (a_reading([cost * (1 + far) for cost in reading]),),
                "orders": (_timed(a_sitting(letters), lap_s=lap_s),),
            },
            devices=lock.device,
            memory=(
                Buffer(place="CPU_Mapped", use="model", size_bytes=_QUANTS[model][1]),
                Buffer(place="CPU", use="KV", size_bytes=47_185_920),
            ),
        )
        for model, far, letters, lap_s in (
            ("F16", 0.0, "r" * 90 + "w" * 30, 0.2),
            ("Q8_0", 0.001, "r" * 91 + "w" * 29, 0.15),
            ("Q4_K_M", 0.02, "r" * 86 + "w" * 32 + "b" * 2, 0.1),
            ("Q2_K", 0.3, "r" * 60 + "w" * 50 + "b" * 10, 0.08),
        )
    ]
    reference, *others = sides
    elsewhere = replace(
        sides[2], lock=with_first(lock, device={"cpu_model": "Intel Xeon"}), name="runs/later:Q4_K_M@f16kv"
    )
    judged = [compare(reference, side) for side in (*others, elsewhere)]
    return ladder(judged, at_most_bytes=110_000_000)


def _ladder_lock() -> Lock:
    models = tuple(
        replace(
            a_model(name),
            warnings=(),
            bits_per_weight=bits,
            file=(replace(a_model(name).file[0], size_bytes=size),),
        )
        for name, (bits, size) in _QUANTS.items()
    )
    points = tuple(f"{name}@f16kv" for name in _QUANTS)
    gates = (
        NonInferior(suite="orders", margin_share=0.1),
        Kld(suite="distance", margin_nats=0.05),
        SpeedAtLeast(suite="orders", at_least_ratio=1.2),
        MemoryAtMost(at_most_bytes=160_000_000),
    )
    lock = with_kld(varying(a_plain_lock(gate=gates, model=models, point=tuple(map(a_point, _QUANTS)))))
    return replace(lock, suite=tuple(replace(suite, points=points) for suite in lock.suite))


def _timed(sitting: Sitting, *, lap_s: float) -> Sitting:
    """The sitting with laps about as long as this."""
    rows = tuple(
        replace(row, times=replace(row.times, lap_s=lap_s * (1 + 0.1 * (index % 7 - 3) / 3)))
        for index, row in enumerate(sitting.rows)
    )
    return replace(sitting, rows=rows)


def _hostile(side: Side) -> Sitting:
    """The exam with one answer that would like to write elsewhere than in its cell."""
    sitting = side.sittings["orders"][0]
    rows = tuple(
        replace(row, replies=(Completed(text=HOSTILE, tokens=(11, 9), ending="eos", prompt_tokens=24),))
        if row.item == "item-0085"
        else row
        for row in sitting.rows
    )
    return replace(sitting, rows=rows)


def rounded(comparison: Comparison) -> Comparison:
    """The same with ten digits in every number: what comes after depends on the versions of numpy and scipy."""
    return msgspec.convert(_rounded(msgspec.to_builtins(comparison)), Comparison)


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.10g}")
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_rounded(inner) for inner in value]
        case _:
            return value


def _bytes(name: str, comparison: Callable[[], Comparison]) -> bytes:
    text: str = importlib.import_module(f"qlock.reports.{name}").render(rounded(comparison()))
    return text.encode()


def _ladder_bytes(name: str) -> bytes:
    found = a_ladder()
    comparisons = tuple(map(rounded, found.comparison))
    text: str = importlib.import_module(f"qlock.reports.{name}").render_all(
        ladder(comparisons, at_most_bytes=found.at_most_bytes)
    )
    return text.encode()


# A ladder as a page would be large, and hold nothing that the other pages do not.
REPORTS: dict[str, Callable[[], bytes]] = {
    **{
        f"{stem}.{name}": partial(_bytes, name, made)
        for name in members("qlock.reports")
        for stem, made in (
            ("report", a_comparison),
            ("report.invalid", an_invalid_comparison),
            ("report.bridge", a_bridged_comparison),
            ("report.distance", a_distance_comparison),
        )
    },
    **{f"ladder.{name}": partial(_ladder_bytes, name) for name in members("qlock.reports") if name != "html"},
}
"""File name to what makes its bytes."""
