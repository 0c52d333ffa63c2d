"""The sign-flip test of paired differences.

Lives here: the test, counted in full or by chance. Does not live here: intervals of means (``means``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qlock.core.stats.interface import (
    AT_ONCE,
    BLUR,
    CannotTell,
    PairedTest,
    generator_of,
    note_on_few,
    unfit,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FLIPS = 20_000
"""Random sign flips where enumeration is too long; a p-value of 0.05 then has a standard error of 0.0015."""

ENUMERATED = 16
"""Up to this many nonzero differences all 2^n sign flips are tried."""

MOST_COUNTED = 20_000
"""Up to this sum of sizes the distribution of whole numbers is counted in full; some tenths of a second."""


def permutation_paired(differences: Sequence[float], seed: int) -> PairedTest | CannotTell:
    """Sign-flip test of "the differences are as likely positive as negative", two-sided, on |Σd|.

    Zeros change nothing and are left out. Up to 16 others every combination of signs is tried. Beyond, whole numbers
    (right answers of an item in its repeats, B − A) are counted in full, size by size, and for others 20,000 random
    combinations are tried, with p = (1 + as extreme) / (1 + tried), which is never 0. Assumes independent items whose
    differences are symmetric about 0 if A and B are alike; give cluster means where items are not independent.
    Below six nonzero differences p cannot fall under 0.05 and the note says so.

    Args:
        differences: One number per item, B − A.
        seed: Of a PCG64 generator, not negative; without effect where nothing is left to chance.

    Source: Fisher 1935; the added one: Phipson & Smyth 2010, doi 10.2202/1544-6115.1585.
    """
    import numpy as np

    generator, refusal = generator_of(seed), unfit(differences)
    if refusal is not None:
        return refusal
    sizes = np.array(sorted(abs(d) for d in differences if d != 0), dtype=np.float64)
    n = len(sizes)
    observed = abs(math.fsum(differences))
    if n > ENUMERATED and sizes.sum() <= MOST_COUNTED and bool((sizes == np.rint(sizes)).all()):
        p_value, mid_p = _counted(sizes, observed)
        is_exact = True
    else:
        p_value, mid_p = _tried(sizes, observed, generator)
        is_exact = n <= ENUMERATED
    return PairedTest(
        p_value=p_value,
        mid_p=mid_p,
        n=n,
        method="sign-flip-exact" if is_exact else "sign-flip-random",
        note=note_on_few(n),
    )


def _counted(sizes: Floats, observed: float) -> tuple[float, float]:
    """P and mid-p of whole numbers, from the distribution of all sums.

    Of m numbers of one size s, s·X are negative with X ~ Binomial(m, 1/2); the sizes are independent of one another.
    """
    import numpy as np
    from scipy.special import gammaln

    if observed == 0:
        return 1.0, 1.0
    chance = np.ones(1)  # by the sum of the negative ones
    for size, count in zip(*np.unique(sizes.astype(np.int64), return_counts=True), strict=True):
        negative = np.arange(count + 1)
        ways = gammaln(count + 1) - gammaln(negative + 1) - gammaln(count - negative + 1)
        spread = np.zeros(size * count + 1)
        spread[::size] = np.exp(ways - count * math.log(2))
        chance = np.convolve(chance, spread)
    sums = np.abs(sizes.sum() - 2 * np.arange(len(chance)))
    extreme, equal = float(chance[sums >= observed].sum()), float(chance[sums == observed].sum())
    return min(extreme, 1.0), min(extreme - equal / 2, 1.0)


def _tried(sizes: Floats, observed: float, generator: np.random.Generator) -> tuple[float, float]:
    """P and mid-p from trying signs: all combinations where they are few, random ones otherwise."""
    import numpy as np

    n = len(sizes)
    blur = BLUR * float(sizes.sum())  # sums that are equal but for rounding
    exact = n <= ENUMERATED
    tried = 2**n if exact else FLIPS
    sums = np.abs(_sums_of_all(sizes) if exact else _sums_of_some(sizes, generator))
    extreme = int((sums >= observed - blur).sum())
    # Where nothing is less extreme, there is no half to leave out.
    equal = int((np.abs(sums - observed) <= blur).sum()) if observed > blur else 0
    more = 0 if exact else 1
    return (extreme + more) / (tried + more), (extreme - equal / 2 + more) / (tried + more)


def _sums_of_all(sizes: Floats) -> Floats:
    """The sums under every combination of signs, shape (2^n,)."""
    import numpy as np

    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate((sums + size, sums - size))
    return sums


def _sums_of_some(sizes: Floats, generator: np.random.Generator) -> Floats:
    """The sums under random signs, shape (FLIPS,); a random byte chooses eight of them at once."""
    import numpy as np

    padded = np.zeros(-(-len(sizes) // 8) * 8)
    padded[: len(sizes)] = sizes
    tables = np.stack([_sums_of_all(eight) for eight in padded.reshape(-1, 8)])
    places = np.arange(len(tables))
    sums = np.empty(FLIPS)
    rows = max(1, AT_ONCE // len(tables))
    for start in range(0, FLIPS, rows):
        count = min(rows, FLIPS - start)
        chosen = generator.integers(0, 256, size=(count, len(tables)), dtype=np.uint8)
        sums[start : start + count] = tables[places, chosen].sum(axis=1)
    return sums
