"""What a suite that is held against a reference needs of its points, as far as their headers say it.

Does not live here: loading the reference (``flows.run_point``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qlock.core.differing import brief
from qlock.core.lock import ModelPin
from qlock.core.spec import PointSpec
from qlock.errors import InputError
from qlock.flows.kinds import params_of, suite_kind
from qlock.flows.proving import Exam


def check_tokenizers(
    exams: Iterable[Exam], points: Mapping[str, PointSpec], models: Mapping[str, ModelPin]
) -> None:
    """Refuse a point whose token ids are not those of its reference, or not those that the suite's data holds.

    Args:
        exams: Every suite.
        points: By name.
        models: By name.

    Raises:
        InputError: With the suite's path in front.
    """
    for exam in exams:
        here = f"suite.{exam.pin.name}"
        kind = suite_kind(exam.pin.kind)
        owners = {"the data": kind.tokenizer_of(exam.data, params_of(kind, exam.pin, where=here))}
        if exam.pin.reference:
            owners[f"the reference `{exam.pin.reference}`"] = _tokenizer(exam.pin.reference, points, models)
        for name in exam.pin.points:
            found = _tokenizer(name, points, models)
            for owner, expected in owners.items():
                if expected not in ("", found):
                    raise InputError(
                        f"`{name}` has another tokenizer than {owner}: got `{brief(found)}`, expected `{brief(expected)}`",
                        hint="leave it out of the suite with `models`; its numbers would be about other tokens",
                    ).within(here)


def _tokenizer(point: str, points: Mapping[str, PointSpec], models: Mapping[str, ModelPin]) -> str:
    return models[points[point].model].tokenizer_digest
