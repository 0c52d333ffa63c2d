"""The arithmetic of comparisons: tests, intervals, and how much data a statement needs.

Lives here: formulas over counts and numbers that are already paired, each with its assumptions and source. Does
not live here: what is paired with what, whether a comparison is valid, and gates as the spec words them.

Three things hold for every function. Side A is the reference and side B is what is judged; a difference is
always B − A. What cannot be computed is a ``CannotTell`` with the reason, never NaN, an infinity, or a zero that
looks like a measurement; counts that contradict themselves are an ``InputError``. The order of items never
matters, and the same seed gives the same numbers
(on one version of numpy, which does not promise its streams beyond that).

Intervals cover the choice of items only. How far two runs of one point differ is another
question (``core.noise``).

    >>> from qlock.core import stats
    >>> stats.mcnemar_exact(6, 0).p_value
    0.03125
"""

from qlock.core.stats.flips import permutation_paired
from qlock.core.stats.interface import (
    FEWEST_PAIRS,
    CannotTell,
    Detectable,
    DetectableMean,
    Interval,
    LargeSample,
    NonInferiority,
    PairedTest,
    PairsNeeded,
)
from qlock.core.stats.marks import (
    PairedMarks,
    marks_of_counts,
    non_inferior,
    paired_interval,
    paired_marks,
    share_interval,
)
from qlock.core.stats.means import (
    ANYWHERE,
    bootstrap_paired,
    cluster_mean,
    large_sample_test,
    mean_of_clusters,
    paired_mean_interval,
)
from qlock.core.stats.shares import (
    holm,
    mcnemar_exact,
    newcombe_paired,
    tango_paired,
    verdict_of,
    wilson,
)
from qlock.core.stats.sizes import (
    detectable_mean,
    fewest_to_pass,
    pairs_to_decide,
    smallest_detectable_difference,
)

__all__ = [
    "ANYWHERE",
    "FEWEST_PAIRS",
    "CannotTell",
    "Detectable",
    "DetectableMean",
    "Interval",
    "LargeSample",
    "NonInferiority",
    "PairedMarks",
    "PairedTest",
    "PairsNeeded",
    "bootstrap_paired",
    "cluster_mean",
    "detectable_mean",
    "fewest_to_pass",
    "holm",
    "large_sample_test",
    "marks_of_counts",
    "mcnemar_exact",
    "mean_of_clusters",
    "newcombe_paired",
    "non_inferior",
    "paired_interval",
    "paired_marks",
    "paired_mean_interval",
    "pairs_to_decide",
    "permutation_paired",
    "share_interval",
    "smallest_detectable_difference",
    "tango_paired",
    "verdict_of",
    "wilson",
]
