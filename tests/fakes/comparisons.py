"""Sides of a comparison, made of letters: one letter per item says what its answer is worth.

`r` right, `w` wrong, `u` unparsable, `b` wrong and out of budget, `c` no room in the context, `e` an error,
`x` excluded, `h` half a mark, `.` no row at all. What is not here: locks (`tests/fakes/documents`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from qlock.core.exchange import (
    Completed,
    Diverged,
    Divergence,
    Ending,
    Excluded,
    Failed,
    Nats,
    Outcome,
    Partial,
    Right,
    Scored,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.lock import Lock
from qlock.core.record import Row, item_digest
from qlock.core.sides import Side, Sitting
from tests.fakes.documents import a_gpu_device, a_lock, a_model, a_point, a_row, a_suite, a_text_suite

_OUTCOMES: dict[str, Outcome] = {
    "r": Right(),
    "w": Wrong(why="got `7`, expected `42`"),
    "u": Unparsable(why="there is no JSON"),
    "b": Wrong(why="there is no answer"),
    "c": Ungraded(why="the prompt does not fit the context"),
    "e": Ungraded(why="the engine died"),
    "x": Excluded(why="the item is ambiguous"),
    "h": Partial(share=0.5),
}
_ENDINGS: dict[str, Ending] = {"b": "budget", "c": "context"}

DIVERGENCE = Divergence(
    nats=(1.0, 2.0),
    reference_nats=(0.5, 2.0),
    kld_nats=(0.25, 0.5),
    reverse_kld_nats=(0.125, 0.5),
    same_top=(True, False),
    depth_tokens=3,
    token_kinds=(),
)
"""Of two tokens."""


def a_divergence(*kld_nats: float) -> Divergence:
    """The outcome of an item of which only the KL divergences matter."""
    ones = (1.0,) * len(kld_nats)
    return Divergence(
        nats=ones,
        reference_nats=ones,
        kld_nats=kld_nats,
        reverse_kld_nats=kld_nats,
        same_top=(True,) * len(kld_nats),
        depth_tokens=0,
        token_kinds=(),
    )


def an_answer(letter: str, number: int) -> Row:
    """The row of one item; right answers are alike on all sides, wrong ones part at the third token."""
    item = f"item-{number:04d}"
    slices = {"bank": "north" if number % 2 else "south", "third": str(number % 3)}
    tokens = (11, 12, 42, 2) if letter == "r" else (11, 12, ord(letter), 7, 2)
    reply = Completed(
        text="The answer is 42." if letter == "r" else f"The answer is {letter}.",
        tokens=() if letter == "c" else tokens,
        ending=_ENDINGS.get(letter, "eos"),
        prompt_tokens=24,
    )
    return a_row(
        item,
        item_digest=item_digest(item, slices, {"question": number}),
        slices=slices,
        replies=(Failed(why="the engine died"),) if letter == "e" else (reply,),
    )


def a_sitting(letters: str, **changes: Any) -> Sitting:
    """One job of the exam `orders`."""
    numbered = [(number, letter) for number, letter in enumerate(letters, start=1) if letter != "."]
    sitting = Sitting(
        repeat=1,
        items=len(letters),
        rows=tuple(an_answer(letter, number) for number, letter in numbered),
        outcomes={f"item-{number:04d}": _OUTCOMES[letter] for number, letter in numbered},
        grade_version=1,
    )
    return msgspec.structs.replace(sitting, **changes)


def a_timed_sitting(rows: list[tuple[int, float]], **changes: Any) -> Sitting:
    """One job of the exam `orders`, each item with the number of its tokens and the seconds of its lap."""
    sitting = a_sitting("r" * len(rows), **changes)
    timed = [
        msgspec.structs.replace(
            row,
            replies=(Completed(text="", tokens=(7,) * tokens, ending="eos", prompt_tokens=24),),
            times=msgspec.structs.replace(row.times, lap_s=lap_s),
        )
        for row, (tokens, lap_s) in zip(sitting.rows, rows, strict=True)
    ]
    return msgspec.structs.replace(sitting, rows=tuple(timed))


def a_reading(nats: list[float], tokens: int = 100) -> Sitting:
    """One job of the text `wikitext`: the cost of each window, spread evenly over its tokens."""
    rows = []
    outcomes: dict[str, Outcome] = {}
    for number, cost in enumerate(nats, start=1):
        item = f"window-{number:04d}"
        reply = Scored(nats=(cost / tokens,) * tokens)
        rows.append(
            a_row(item, item_digest=item_digest(item, {}, {"w": number}), slices={}, replies=(reply,))
        )
        outcomes[item] = Nats(nats_sum=cost, nats_square_sum=cost * cost / tokens, scored_tokens=tokens)
    return Sitting(repeat=1, items=len(nats), rows=tuple(rows), outcomes=outcomes, grade_version=1)


def a_distance(kld: list[float], tokens: int = 20, *, slack: float = 0.0) -> Sitting:
    """One job of the text `distance`: the divergence of each window, spread over its tokens; zero is the reference's.

    Where ``slack`` is more than 0, all of them are lower bounds of which as much may be missing.
    """
    rows = []
    outcomes: dict[str, Outcome] = {}
    for number, mean in enumerate(kld, start=1):
        item = f"window-{number:04d}"
        slices = {"half": "first" if number <= len(kld) / 2 else "second"}
        costs = tuple(2.0 + 0.25 * (index % 5) for index in range(tokens))
        apart = tuple(mean * (0.5 + index / (tokens - 1)) for index in range(tokens))
        nats = tuple(cost + 0.5 * far for cost, far in zip(costs, apart, strict=True))
        same = tuple(far < 0.1 for far in apart)
        reply = Diverged(
            nats=nats,
            reference_nats=costs,
            kld_nats=apart,
            reverse_kld_nats=apart,
            same_top=same,
            pieces=(),
        )
        outcomes[item] = Divergence(
            nats=nats,
            reference_nats=costs,
            kld_nats=apart,
            reverse_kld_nats=apart,
            same_top=same,
            depth_tokens=250,
            token_kinds=("prose", "number") * (tokens // 2),
            kld_slack_nats=(slack,) * tokens if slack else (),
        )
        rows.append(
            a_row(item, item_digest=item_digest(item, slices, {"w": number}), slices=slices, replies=(reply,))
        )
    return Sitting(repeat=1, items=len(kld), rows=tuple(rows), outcomes=outcomes, grade_version=1)


def a_plain_lock(**changes: Any) -> Lock:
    """A lock whose exam is sat once and that has no gates."""
    lock = a_lock(suite=(a_text_suite(), a_suite(repeats=1)), gate=())
    return msgspec.structs.replace(lock, **changes)


def a_side(letters: str = "", *, model: str = "F16", **changes: Any) -> Side:
    """A sealed point that sat the exam `orders`."""
    side = Side(
        name=f"runs/ladder:{model}@f16kv",
        lock=a_plain_lock(),
        point=f"{model}@f16kv",
        sealed=True,
        forced=(),
        sittings={"orders": (a_sitting(letters),)} if letters else {},
    )
    return msgspec.structs.replace(side, **changes)


def a_card_lock() -> Lock:
    """The plain lock on cards, where the original does not fit: points `Q4_K_M@f16kv` and `Q2_K@f16kv`."""
    device = a_gpu_device()
    models = ("Q4_K_M", "Q2_K")
    points = tuple(f"{model}@f16kv" for model in models)
    lock = a_plain_lock(
        device=(device,),
        model=tuple(map(a_model, models)),
        point=tuple(a_point(model, device=device.name) for model in models),
    )
    suites = tuple(msgspec.structs.replace(suite, points=points) for suite in lock.suite)
    return msgspec.structs.replace(lock, suite=suites)


def a_crossing(*letters: str) -> tuple[Side, Side, Side, Side]:
    """A on a CPU, the bridge there and on cards, and B on cards, each with its answers in letters."""
    cards = a_card_lock()
    a, here, there, b = letters
    return (
        a_side(a),
        a_side(here, model="Q4_K_M"),
        a_side(there, model="Q4_K_M", lock=cards, name="runs/cards:Q4_K_M@f16kv"),
        a_side(b, model="Q2_K", lock=cards, name="runs/cards:Q2_K@f16kv"),
    )


def varying(lock: Lock) -> Lock:
    """The lock with points that do not give the same answers twice."""
    points = tuple(msgspec.structs.replace(point, repeatable="tokens") for point in lock.point)
    return msgspec.structs.replace(lock, point=points)


def with_first(lock: Lock, **tables: dict[str, Any]) -> Lock:
    """The lock with other fields in the first entry of each table named."""
    for table, fields in tables.items():
        first, *others = getattr(lock, table)
        lock = msgspec.structs.replace(lock, **{table: (msgspec.structs.replace(first, **fields), *others)})
    return lock
