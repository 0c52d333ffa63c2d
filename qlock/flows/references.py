"""The reference of a suite whose points are held against one: what both must have in common, and having it beside.

Does not live here: when it is needed (``flows.held_against``), and what is held against it (the engine).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET

from qlock.core.differing import brief
from qlock.core.facts import ReadBack, Setting
from qlock.core.lock import ModelPin, PointPin, SuitePin
from qlock.core.spec import PointSpec
from qlock.core.verify import Finding
from qlock.engines.interface import Engine, Load
from qlock.errors import EngineError, InputError
from qlock.flows import proving
from qlock.flows.kinds import params_of, suite_kind, tokenizer_of
from qlock.flows.obedience import card_findings
from qlock.flows.proving import Exam
from qlock.flows.room import check_room
from qlock.flows.weighing import Weighed
from qlock.world.interface import World


def is_beside(suite: SuitePin) -> bool:
    """Whether the points of a suite need their reference loaded beside them."""
    return bool(suite.reference) and not is_stored(suite)


def is_stored(suite: SuitePin) -> bool:
    """Whether a suite reads what its reference said from a file."""
    return bool(suite.reference) and suite.params.get("stored") is True


def check_tokenizers(
    exams: Iterable[Exam], points: Mapping[str, PointSpec], models: Mapping[str, ModelPin]
) -> None:
    """Refuse a point whose token ids are not those of its reference or of the suite's data, and another's answers.

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
        params = params_of(kind, exam.pin, where=here)
        owners = {"the data": tokenizer_of(kind, params, exam.pin, exam.data)}
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
        if exam.pin.reference:
            reference = models[points[exam.pin.reference].model]
            _refuse_other_answers(exam, kind.tensors_of(exam.data, params), reference)


def _refuse_other_answers(exam: Exam, answered: str, reference: ModelPin) -> None:
    """Refuse answers that a model with other tensors than the reference's gave."""
    known = reference.tensors_digest
    if known is not UNSET and answered not in ("", known):
        raise InputError(
            f"the data holds answers of another model than the reference `{exam.pin.reference}`: "
            f"got the tensors `{brief(answered)}`, expected `{brief(known)}`",
            hint="take the traces from a run of the reference",
        ).within(f"suite.{exam.pin.name}")


def vocab_tokens(models: Iterable[Weighed], pins: Iterable[PointPin]) -> dict[str, int]:
    """How many tokens the vocabulary of a point has, by its name: as the header says, or as it was read back."""
    weighed = {model.pin.name: model for model in models}
    found: dict[str, int] = {}
    for pin in pins:
        match weighed[pin.model].vocab_tokens, pin.read_back:
            case (int(tokens), _) | (_, ReadBack(vocab_tokens=tokens)):
                found[pin.name] = tokens
            case _:
                continue
    return found


def load_beside(
    world: World,
    engine: Engine,
    own: Load,
    reference: Load,
    pin: PointPin,
    *,
    pci_bus_id: tuple[str, ...],
) -> list[Finding]:
    """Load the reference beside the point that is loaded, and give what is not as locked (rules 5 and 7).

    Of rule 7 the plain text is held, and that only where the point's context is as long as the reference's: the text was
    cut to the reference's own, and the point could not be asked all of it. A shorter context leaves it unheld here; the
    reference is held to it wherever it is loaded for itself.

    Args:
        world: This machine.
        engine: One with a point loaded.
        own: What was loaded for that point.
        reference: What is loaded for the reference.
        pin: The reference's.
        pci_bus_id: Where the cards sit that the engine is given.

    Raises:
        AbsentError: There is no room for both.
        EngineError: It could not be loaded beside, or has another vocabulary.
    """
    check_room(world, own, beside=reference)
    read_back = engine.refer(reference)
    if read_back is None:
        raise EngineError("the engine says nothing of the reference that it loaded")
    where = f"point.{pin.name}"
    found = proving.hold_read_back(where, pin.read_back, reference.setting, read_back)
    if _placed(own.setting) == _placed(reference.setting):
        # What an engine says of its cards is about both.
        found += card_findings(where, reference.setting, given=pci_bus_id, used=engine.devices())
    if own.setting.context_tokens >= reference.setting.context_tokens:
        # The plain text was cut to the reference's own context.
        nats = proving.reference_nats(engine, read_back)
        found += proving.hold_nats(where, pin.plain_text_nats, nats)
    return found


def _placed(setting: Setting) -> tuple[object, ...]:
    return setting.gpu_layers, setting.split_mode, setting.main_gpu


def _tokenizer(point: str, points: Mapping[str, PointSpec], models: Mapping[str, ModelPin]) -> str:
    return models[points[point].model].tokenizer_digest
