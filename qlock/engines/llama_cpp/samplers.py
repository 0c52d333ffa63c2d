"""What a server is told to do wherever a request says nothing, and whether it says that it does.

Every request says all of it again (``asked``). It is given on the command line too, since a file of weights may bring
defaults of its own; and what the server then tells of them is held against what it was given, field by field. A field
that is not told cannot be verified, which is a deviation as well.

Pure. Does not live here: asking the server (``props``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qlock.core.escape import for_message
from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp.asked import OFF, OTHERWISE_FIXED, is_same

DEFAULTS: tuple[tuple[str, str, int | float | tuple[str, ...]], ...] = (
    ("--samplers", "samplers", ("temperature",)),
    ("--seed", "seed", 0),
    ("--temp", "temperature", 0.0),
    ("--top-k", "top_k", 0),
    ("--top-p", "top_p", 1.0),
    ("--min-p", "min_p", 0.0),
    ("--top-n-sigma", "top_n_sigma", -1.0),
    ("--xtc-probability", "xtc_probability", 0.0),
    ("--xtc-threshold", "xtc_threshold", 0.1),
    ("--typical", "typical_p", 1.0),
    ("--repeat-last-n", "repeat_last_n", 0),
    ("--repeat-penalty", "repeat_penalty", 1.0),
    ("--presence-penalty", "presence_penalty", 0.0),
    ("--frequency-penalty", "frequency_penalty", 0.0),
    ("--dry-multiplier", "dry_multiplier", 0.0),
    ("--dry-base", "dry_base", 1.75),
    ("--dry-allowed-length", "dry_allowed_length", 2),
    ("--dry-penalty-last-n", "dry_penalty_last_n", 0),
    ("--dynatemp-range", "dynatemp_range", 0.0),
    ("--dynatemp-exp", "dynatemp_exponent", 1.0),
    ("--mirostat", "mirostat", 0),
    ("--mirostat-lr", "mirostat_eta", 0.1),
    ("--mirostat-ent", "mirostat_tau", 5.0),
)
"""Options of the command line, the server's names for what they set, and the values."""

_LEFT_ALONE: dict[str, tuple[object, ...]] = {
    "n_predict": (-1,),
    "max_tokens": (-1,),
    "n_probs": (0,),
    "ignore_eos": (False,),
    "logit_bias": ([],),
    "stop": ([],),
}
"""What no option is passed for, and what the server must then say of it."""


_UNSAID = "the server does not say it"


def option_value(value: float | tuple[str, ...]) -> str:
    """A value as the command line takes it."""
    return ";".join(value) if isinstance(value, tuple) else f"{value:g}"


def deviations(told: object, passed: Collection[str]) -> list[Deviation]:
    """What a server's defaults are otherwise than it was given, by name.

    Args:
        told: What it tells of them: a mapping, or anything else.
        passed: Options that it was given.
    """
    if not isinstance(told, Mapping):
        expected = "a default for every sampler"
        return [Deviation(name="sampling", expected=expected, found="missing", why=_UNSAID)]
    known = OTHERWISE_FIXED | {name: (value,) for name, value in OFF.items()} | _LEFT_ALONE
    needed = {}
    for option, name, value in DEFAULTS:
        known[name] = (list(value) if isinstance(value, tuple) else value,)
        if option in passed:
            needed[name] = known[name]
    return [
        deviation
        for name in sorted({*needed, *map(str, told)})
        if (deviation := _deviation(name, known.get(name), told)) is not None
    ]


def _deviation(
    name: str, allowed: tuple[object, ...] | None, told: Mapping[object, object]
) -> Deviation | None:
    where = f"sampling.{for_message(name)}"
    expected = "absent" if allowed is None else shown(allowed[0])
    if name not in told:
        return Deviation(name=where, expected=expected, found="missing", why=_UNSAID)
    got = told[name]
    if allowed is None:
        return Deviation(
            name=where, expected=expected, found=shown(got), why="qlock does not know what it does"
        )
    if any(is_same(got, one) for one in allowed):
        return None
    return Deviation(name=where, expected=expected, found=shown(got))


def shown(value: object) -> str:
    """A value of the server's for people: bounded, without control characters."""
    return for_message(", ".join(map(str, value)) if isinstance(value, list) else str(value))
