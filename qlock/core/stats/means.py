"""Means of paired differences: t intervals, cluster-robust ones, the bootstrap, and the normal test.

Lives here: whatever is computed from one number per item (a difference of nats, of scores, of tokens). Does not
live here: counts of right and wrong (``shares``), and the test by sign flips (``flips``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from qlock.core.base import Base
from qlock.core.stats.interface import (
    AT_ONCE,
    BLUR,
    CannotTell,
    Interval,
    LargeSample,
    check_probability,
    generator_of,
    unfit,
)
from qlock.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

ANYWHERE = (-math.inf, math.inf)
"""Where a mean may lie of which nothing is known."""

RESAMPLES = 10_000
"""Bootstrap resamples: either end of a 95 % interval then has 250 of them beyond it."""


class _Groups(Base, frozen=True, kw_only=True):
    """Values summed by cluster, in an order that depends on the sums alone."""

    sums_and_sizes: tuple[tuple[float, int], ...]
    n: int
    point: float


def paired_mean_interval(differences: Sequence[float], *, level: float = 0.95) -> Interval | CannotTell:
    """Mean of paired differences with its t interval: d̄ ± t(n−1)·s/√n.

    Assumes independent items and a mean that is about normal: for fewer than some thirty items that leans on the
    differences themselves being so. Below two items, or where all are equal, it cannot tell.

    Args:
        differences: One number per item, B − A.
        level: Confidence, as a share.

    Source: Student 1908.
    """
    return _t_interval(differences, None, level)


def cluster_mean(
    values: Sequence[float], clusters: Sequence[Hashable], *, level: float = 0.95
) -> Interval | CannotTell:
    """Mean over all values with a cluster-robust (CR1) standard error and a t interval with G − 1 degrees.

    With G clusters and e the distance of a value from the mean, SE² = G/(G−1) · Σ_g (Σ_i∈g e_i)² / n². Assumes
    independent clusters; inside one, anything goes. Trustworthy from about thirty clusters, too short below.
    Below two clusters, or where the clusters do not differ, it cannot tell.

    Args:
        values: One number per item.
        clusters: The group of each item (question of a repeat, document of a window), in the same order.
        level: Confidence, as a share.

    Source: Liang & Zeger 1986; CR1 as in Cameron & Miller 2015, doi 10.3368/jhr.50.2.317.
    """
    return _t_interval(values, clusters, level)


def mean_of_clusters(
    sums: Sequence[float],
    sizes: Sequence[int],
    *,
    within: tuple[float, float] = ANYWHERE,
    level: float = 0.95,
) -> Interval | CannotTell:
    """Mean over all values with an interval that leans as the clusters do and keeps to where a mean may lie.

    With SE of ``cluster_mean``, e_g the distance of a cluster's sum from its size times the mean, and
    k = Σ e_g³ / (Σ e_g²)^1.5, T = (mean − truth) / SE is skewed by k, and T + k·T²/3 + k²·T³/27 + k/6 hardly is. The
    interval is mean − SE·y for the two y that make this ± t(G−1): y = 3/k · (∛(1 + k·(±t − k/6)) − 1). It is Student's
    where the clusters lie evenly, which misses more often where they lean. What lies outside the range is cut off, which
    takes no truth away. Assumes independent clusters; below two, or where they do not differ, it cannot tell.

    Args:
        sums: One sum per cluster.
        sizes: How many values each has, at least one.
        within: The least and the largest that a mean of such values can be.
        level: Confidence, as a share.

    Source: Hall 1992, "On the removal of skewness by transformation", doi 10.1111/j.2517-6161.1992.tb01872.x; CR1 as in
    ``cluster_mean``.
    """
    check_probability("level", level)
    refusal = unfit(sums)
    groups = refusal or _judged(list(zip(sums, sizes, strict=True)), math.fsum(sums), "cluster")
    if isinstance(groups, CannotTell):
        return groups
    point, error, quantile = groups.point, _error(groups), _t_quantile(groups, level)
    down, up = (_unbent(end, _skewness(groups)) * error for end in (quantile, -quantile))
    return msgspec.structs.replace(
        _t_interval_of(groups, level, "hall-t"),
        low=min(max(point - down, within[0]), point),
        high=max(min(point - up, within[1]), point),
    )


def bootstrap_paired(
    differences: Sequence[float],
    *,
    seed: int,
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
) -> Interval | CannotTell:
    """Mean of paired differences with an interval: at each end the farther one of a bootstrap-t and the t interval.

    10,000 resamples, of whole clusters where there are any; each one's distance from the mean is divided by its own
    standard error (CR1), and the quantiles of that stand in for those of t, so that the interval leans as the
    differences do. Bootstrap-t misses too often where tails are heavy, t where they are skewed (of 95 % intervals of 20
    numbers, 92 and 95 % held the mean for t with 3 degrees, 94 and 91 % for exponential ones); together they held 95 %.
    The t interval alone where too many resamples have no spread (``method`` says which). Assumes independent clusters.
    Below two, or where all are equal, it cannot tell. Exchanging A and B only changes the signs.

    Args:
        differences: One number per item, B − A.
        seed: Of a PCG64 generator, not negative.
        clusters: The group of each item, in the same order; None where each stands alone.
        level: Confidence, as a share.

    Source: Efron 1981, doi 10.2307/3314608; Hall 1988, doi 10.1214/aos/1176350933; clusters: Davison & Hinkley 1997,
    section 3.8.
    """
    plain, groups = _t_interval(differences, clusters, level), _grouped(differences, clusters)
    if isinstance(plain, CannotTell) or isinstance(groups, CannotTell):
        return plain
    down, up = _bootstrapped_both_ways(groups, seed, (1 - level) / 2)
    if not math.isfinite(down + up):
        return plain
    return Interval(
        point=plain.point,
        low=min(plain.point - down, plain.low),
        high=max(plain.point + up, plain.high),
        level=level,
        n=plain.n,
        clusters=plain.clusters,
        method="bootstrap-t",
    )


def large_sample_test(mean: Interval | CannotTell) -> LargeSample | CannotTell:
    """The normal test of "the mean is 0", two-sided, of a t interval: p = erfc(|mean| / (SE·√2)).

    Assumes so many independent clusters that their mean is normal and t is too.
    """
    match mean:
        case Interval(point=point, clusters=clusters, standard_error=float(error)):
            return LargeSample(p_value=math.erfc(abs(point) / error / math.sqrt(2)), n=clusters)
        case Interval():
            return CannotTell(why="there is no standard error")
        case CannotTell():
            return mean


def _t_interval(
    values: Sequence[float], clusters: Sequence[Hashable] | None, level: float
) -> Interval | CannotTell:
    """CR1 and its t interval; with one item per cluster that is exactly Student's."""
    check_probability("level", level)
    groups = _grouped(values, clusters)
    if isinstance(groups, CannotTell):
        return groups
    return _t_interval_of(groups, level, "t" if clusters is None else "cluster-t")


def _t_interval_of(groups: _Groups, level: float, method: Literal["t", "cluster-t", "hall-t"]) -> Interval:
    point, error, quantile = groups.point, _error(groups), _t_quantile(groups, level)
    return Interval(
        point=point,
        low=point - quantile * error,
        high=point + quantile * error,
        level=level,
        n=groups.n,
        clusters=len(groups.sums_and_sizes),
        method=method,
        standard_error=error,
    )


def _t_quantile(groups: _Groups, level: float) -> float:
    """The quantile t(G − 1) that leaves (1 − level) / 2 on either side."""
    from scipy.special import stdtrit

    return -float(stdtrit(len(groups.sums_and_sizes) - 1, (1 - level) / 2))


def _sorted(pairs: Iterable[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    return tuple(sorted(pairs))


def _grouped(values: Sequence[float], clusters: Sequence[Hashable] | None) -> _Groups | CannotTell:
    """The values by cluster, or why their spread cannot be judged."""
    if clusters is not None and len(clusters) != len(values):
        raise InputError(
            f"every value has a cluster: got `{len(clusters)}` clusters for `{len(values)}` values"
        )
    refusal = unfit(values)
    if refusal is not None:
        return refusal
    members: dict[Hashable, list[float]] = {}
    for index, value in enumerate(values):
        members.setdefault(index if clusters is None else clusters[index], []).append(value)
    pairs = [(math.fsum(group), len(group)) for group in members.values()]
    what: Literal["item", "cluster"] = "item" if clusters is None else "cluster"
    return _judged(pairs, math.fsum(values), what)


def _judged(
    pairs: list[tuple[float, int]], total: float, what: Literal["item", "cluster"]
) -> _Groups | CannotTell:
    """Sums and sizes whose spread can be judged, or why it cannot; ``total`` is the sum of all values."""
    if len(pairs) < 2:
        return CannotTell(why=f"there is only one {what}, and at least two show how far they differ")
    n = sum(size for _, size in pairs)
    point = total / n
    largest = max(abs(summed) for summed, _ in pairs)
    if all(abs(summed - size * point) <= 1e-12 * largest for summed, size in pairs):  # equal but for rounding
        told = "values" if what == "item" else "means of clusters"
        return CannotTell(why=f"all {told} are {point:g}, which does not show how far they could differ")
    return _Groups(sums_and_sizes=_sorted(pairs), n=n, point=point)


def _error(groups: _Groups) -> float:
    """The cluster-robust (CR1) standard error of the mean."""
    count, point = len(groups.sums_and_sizes), groups.point
    # Squares in here cannot under- or overflow.
    distance = math.hypot(*(total - size * point for total, size in groups.sums_and_sizes))
    return math.sqrt(count / (count - 1)) * distance / groups.n


def _skewness(groups: _Groups) -> float:
    """Of the clusters' distances from the mean, over the root of their number: between −1 and 1."""
    excess = [total - size * groups.point for total, size in groups.sums_and_sizes]
    whole = math.hypot(*excess)
    return math.fsum((far / whole) ** 3 for far in excess)


def _unbent(quantile: float, skewness: float) -> float:
    """The T whose transform is a quantile: 3/k · (∛(1 + k·(x − k/6)) − 1), written so that k may be 0."""
    shifted = quantile - skewness / 6
    root = math.cbrt(1 + skewness * shifted)
    return 3 * shifted / (root * root + root + 1)


def _bootstrapped_both_ways(groups: _Groups, seed: int, tail: float) -> tuple[float, float]:
    """How far the interval reaches down and up; exactly the other way round where all signs are changed.

    The resamples see the groups or their mirror image, whichever sorts first.
    """
    mirrored = _sorted((-total, size) for total, size in groups.sums_and_sizes)
    if mirrored < groups.sums_and_sizes:
        up, down = _bootstrapped(
            msgspec.structs.replace(groups, sums_and_sizes=mirrored, point=-groups.point), seed, tail
        )
    else:
        down, up = _bootstrapped(groups, seed, tail)
    if mirrored == groups.sums_and_sizes:
        down = up = (down + up) / 2
    return down, up


def _bootstrapped(groups: _Groups, seed: int, tail: float) -> tuple[float, float]:
    """How far the interval reaches down and up from the mean, neither below 0; infinite where that is not known."""
    import numpy as np

    drawn = np.array(groups.sums_and_sizes, dtype=np.float64)
    sizes = drawn[:, 1]
    excess = drawn[:, 0] - sizes * groups.point  # around the mean, where nothing is lost to rounding
    largest = float(np.abs(excess).max())
    ratios = _resampled_ratios(excess / largest, sizes, seed)
    # Between two infinities of one sign NumPy would give NaN.
    lowest, highest = np.quantile(ratios, [tail, 1 - tail], method="nearest").tolist()
    error = _error(groups)
    return max(highest * error, 0.0), max(-lowest * error, 0.0)


def _resampled_ratios(excess: Floats, sizes: Floats, seed: int) -> Floats:
    """How many of its own standard errors each resample's mean lies above the mean of all.

    Infinite where the clusters that were drawn are alike.

    Args:
        excess: Shape (clusters,), each cluster's sum less its size times the mean of all; of ordinary size.
        sizes: Shape (clusters,), items in each.
        seed: Of the generator.
    """
    import numpy as np

    generator = generator_of(seed)
    count = len(excess)
    is_even = bool((sizes == sizes[0]).all())
    ratios = np.empty(RESAMPLES, dtype=np.float64)
    rows = max(1, AT_ONCE // count)
    for start in range(0, RESAMPLES, rows):
        chosen = generator.integers(0, count, size=(min(rows, RESAMPLES - start), count))
        far, many = excess[chosen], np.broadcast_to(sizes[0], chosen.shape) if is_even else sizes[chosen]
        shift = far.sum(axis=1) / many.sum(axis=1)
        far -= many * shift[:, None]
        error = np.sqrt(np.einsum("ij,ij->i", far, far) * count / (count - 1)) / many.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(error > BLUR, shift / error, np.copysign(np.inf, shift))
        ratios[start : start + len(chosen)] = np.where(np.abs(shift) > BLUR, ratio, 0.0)
    return ratios
