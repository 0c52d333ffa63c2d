"""Proving a point on the node: load it, hold the engine to its setting, and pin what it does.

Lives here: the order of the proof and what it yields. Does not live here: which points are proved and what is kept
from an older lock (``flows.resolve``), running (``flows.run``) - which holds a machine against the same facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.canaries import (
    CANARIES,
    PLAIN_TEXT,
    PROBE_PROMPTS,
    PROBE_STEPS,
    SAMPLED,
    STEPS,
    sane_nats_limit,
)
from qlock.core.digest import digest_of
from qlock.core.lock import PromptsPin, SuitePin
from qlock.core.probing import verdict
from qlock.core.verify import Finding, Rule, differences, missing, read_back_findings
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Done,
    Engine,
    Generate,
    Generated,
    Kept,
    Measure,
    Measured,
    greedy,
)
from qlock.errors import AbsentError, EngineError, InputError
from qlock.world.interface import World

GREEDY = greedy(STEPS, ignore_eos=True)

DRAWN = msgspec.structs.replace(
    GREEDY,
    temperature=1.1,
    top_k=50,
    top_p=0.95,
    min_p=0.01,
    repeat_penalty=1.1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    penalty_tokens=64,
    seed=20_260_101,
)
"""Of the sampled canary: no rule is switched off, and each leaves something to choose from. It never changes."""

Opener = Callable[..., Engine]
"""``open_engine(lib_folder=…)`` of an engine's module."""


class Exam(msgspec.Struct, frozen=True, kw_only=True):
    """A suite with the bytes of its files at hand."""

    pin: SuitePin
    data: Mapping[str, bytes]
    template: str | None
    """The suite's own chat template."""


class Behaviour(Base, frozen=True, kw_only=True):
    """What a loaded point does with the canaries."""

    canary: tuple[facts.Canary, ...]
    plain_text_nats: float


class Proof(Base, frozen=True, kw_only=True):
    """All that can be pinned of a point on the node."""

    read_back: facts.ReadBack
    behaviour: Behaviour
    prompts: tuple[PromptsPin, ...]
    probe: tuple[facts.ProbeRow, ...]
    repeatable: Literal["bitwise", "tokens", "no"]
    repeatable_why: str


def behave(engine: Engine, read_back: facts.ReadBack) -> Behaviour:
    """Decode the canaries.

    A canary that does not fit the context is left out: the lock pins which ones there are.

    Raises:
        EngineError: A canary could not be decoded.
    """
    room = read_back.context_tokens - STEPS
    names = list(CANARIES)
    ids = engine.tokenize([*CANARIES.values(), PLAIN_TEXT], add_special=True, parse_special=False)
    fitting = {name: tokens for name, tokens in zip(names, ids, strict=False) if 0 < len(tokens) <= room}
    for name, tokens in fitting.items():
        sampling = DRAWN if name == SAMPLED else GREEDY
        engine.submit(Generate(id=name, tokens=tokens, sampling=sampling, logprobs=False, logits_digest=True))
    plain = ids[-1][: read_back.context_tokens]
    engine.submit(Measure(id="plain-text", tokens=plain, score_from=1))
    done: dict[str, Done] = {}
    for _ in range(len(fitting) + 1):
        one = engine.next_done()
        done[one.id] = one
    canaries = tuple(_canary(name, done[name]) for name in sorted(fitting))
    return Behaviour(canary=canaries, plain_text_nats=_mean_nats(done["plain-text"]))


def _canary(name: str, done: Done) -> facts.Canary:
    match done:
        case Generated(tokens=tokens, logits_digest=logits) if logits and done.ending != "error":
            return facts.Canary(name=name, tokens_digest=digest_of("tokens", tokens), logits_digest=logits)
        case Generated(why=why) | Broken(why=why):
            raise EngineError(f"the canary `{name}` could not be decoded: {why or 'no logits came back'}")
        case Measured() | Contrasted() | Kept():
            raise EngineError(f"the canary `{name}` came back scored, expected tokens")


def _mean_nats(done: Done) -> float:
    match done:
        case Measured(nats=nats) | Contrasted(reference_nats=nats) if nats:
            return math.fsum(nats) / len(nats)
        case Broken(why=why):
            raise EngineError(f"the plain text could not be scored: {why}")
        case _:
            raise EngineError("the plain text could not be scored: no values came back")


def reference_nats(engine: Engine, read_back: facts.ReadBack) -> float:
    """Mean nats per token of the plain text, as the reference beside the loaded point gives them.

    Args:
        engine: One that was told its reference.
        read_back: The reference's.

    Raises:
        EngineError: The text could not be held against it.
    """
    (tokens,) = engine.tokenize([PLAIN_TEXT], add_special=True, parse_special=False)
    plain = tokens[: read_back.context_tokens]
    engine.submit(Contrast(id="plain-text", tokens=plain, score_from=1, pieces=False))
    return _mean_nats(engine.next_done())


def hold_read_back(
    where: str, pinned: facts.ReadBack | UnsetType, setting: facts.Setting, seen: facts.ReadBack
) -> list[Finding]:
    """Rule 5: what an engine says of a loaded point against what is pinned and ordered, each place once."""
    here = f"{where}.read_back."
    found: list[Finding] = []
    if isinstance(pinned, facts.ReadBack):
        found += differences("read-back", here.removesuffix("."), pinned, seen)
    # Of a table too, it is the field that is told: `weights_buffer.CUDA0` is about `weights_buffer`.
    told = {finding.where.removeprefix(here).partition(".")[0] for finding in found}
    return found + [
        finding
        for finding in read_back_findings(where, setting, seen)
        if finding.where.removeprefix(f"{where}.") not in told
    ]


def hold_nats(where: str, pinned: float | UnsetType, seen: float) -> list[Finding]:
    """Rule 7: what the plain text costs, to the last digit."""
    if pinned is UNSET:
        return [missing("canaries", f"{where}.plain_text_nats", "a number", "the lock does not say")]
    if pinned == seen:
        return []
    return [
        Finding(
            rule="canaries",
            where=f"{where}.plain_text_nats",
            expected=repr(pinned),
            found=repr(seen),
            effect="output",
        )
    ]


def insane(behaviour: Behaviour, read_back: facts.ReadBack, *, where: str) -> list[Finding]:
    """A finding when plain English costs the model as much as guessing: its kernels or its file are broken."""
    limit = sane_nats_limit(read_back.vocab_tokens)
    if behaviour.plain_text_nats < limit:
        return []
    return [
        Finding(
            rule="canaries",
            where=f"{where}.plain_text_nats",
            expected=f"below {limit:.2f}",
            found=f"{behaviour.plain_text_nats:.2f}",
            effect="output",
            why="engine output not sane: plain English costs as much as guessing; "
            "for random weights set `trained = false`",
        )
    ]


def probe(engine: Engine, read_back: facts.ReadBack) -> tuple[facts.ProbeRow, ...]:
    """Run the schedule probe on the canaries that fit."""
    ids = engine.tokenize([CANARIES[name] for name in PROBE_PROMPTS], add_special=True, parse_special=False)
    room = read_back.context_tokens - PROBE_STEPS
    return engine.probe([tokens for tokens in ids if 0 < len(tokens) <= room], steps=PROBE_STEPS)


def engine_facts(
    world: World, engine: Engine, *, name: str, kind: str, environment: Mapping[str, str]
) -> facts.Engine:
    """The engine as it runs now: every file that its process mapped; whole only after a decode.

    Args:
        world: This machine.
        engine: The engine.
        name: What the lock calls it.
        kind: Of the engine.
        environment: What it was given of the spec's variables.
    """
    mapped = engine.mapped_files()
    folders = sorted(
        {str(Path(file.path).parent) for file in mapped if Path(file.path).name.startswith("libllama")}
    )
    files = world.maps.engine_files(
        mapped,
        build_folders=[Path(folder) for folder in folders],
        digest=lambda path: world.digests.digest_file(path, cache=world.cache_folder),
    )
    return facts.Engine(
        name=name,
        kind=kind,
        label=engine.label(),
        system_info=engine.system_info(),
        environment=dict(environment),
        file=tuple(files),
    )


def pinned(engine: facts.Engine) -> facts.Engine:
    """The part of an engine that a lock pins: files that cannot change output belong to each run's facts."""
    return msgspec.structs.replace(
        engine, file=tuple(file for file in engine.file if file.role in ("build", "math", "driver"))
    )


def see_engine(
    world: World, engine: Engine, pin: facts.Engine, *, rule: Rule
) -> tuple[facts.Engine | None, list[Finding]]:
    """The engine as it runs now, with everything it maps, and what of it is not as locked.

    A file that was replaced while the engine runs it cannot be read any more: that is a finding too.
    """
    try:
        seen = engine_facts(world, engine, name=pin.name, kind=pin.kind, environment=pin.environment)
    except (AbsentError, InputError) as error:
        return None, [missing(rule, f"engine.{pin.name}.file", "as locked", str(error))]
    return seen, differences(rule, f"engine.{pin.name}", pin, pinned(seen))


def proof(
    engine: Engine,
    read_back: facts.ReadBack,
    *,
    setting: facts.Setting,
    prompts: tuple[PromptsPin, ...],
) -> Proof:
    """Canaries and probe of the loaded point."""
    behaviour = behave(engine, read_back)
    rows = probe(engine, read_back)
    said = verdict(rows, slots=setting.slots)
    return Proof(
        read_back=read_back,
        behaviour=behaviour,
        prompts=prompts,
        probe=rows,
        repeatable=said.repeatable,
        repeatable_why=said.why,
    )
