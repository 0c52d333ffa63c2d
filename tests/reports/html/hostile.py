"""Texts that would like to be more than text, and a comparison that is full of them."""

from __future__ import annotations

import msgspec

from qlock.core.agreement import Agreement
from qlock.core.comparison import Comparison
from tests.golden.make_reports import HOSTILE, a_comparison

replace = msgspec.structs.replace

ATTACKS = (
    f"a{HOSTILE}",
    "a<img src=x onerror=window.ran=true>",
    "a</script><script>window.ran=true</script>",
    "a</pre></details><svg onload=window.ran=true>",
    'a" onmouseover="window.ran=true" autofocus onfocus="window.ran=true',
    "a<!--",
    "a]]>",
    "a</title><iframe srcdoc='<script>parent.ran=true</script>'>",
    "a<style>*{display:none}</style>",
)


def with_answers(written: str) -> Comparison:
    """The comparison of the golden file, with this text wherever a model or a person wrote one."""
    found = a_comparison()
    suite = found.suite[1]
    assert isinstance(suite.agreement, Agreement)
    flips = tuple(
        replace(flip, item=written, slices=(written,), outcome_b=written, text_a=written, text_b=written)
        for flip in suite.agreement.flip
    )
    slices = replace(suite.slices, row=tuple(replace(row, slice=written) for row in suite.slices.row))
    suite = replace(suite, suite=written, slices=slices, agreement=replace(suite.agreement, flip=flips))
    side = replace(found.b, name=written, point=written, engine=written)
    return replace(found, b=side, suite=(found.suite[0], suite), why=(written,), only_a=(written,))
