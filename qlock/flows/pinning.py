"""The parts of a lock that need no engine: settings, suites.

Does not live here: the device (``flows.device``), models (``flows.weighing``), points (``flows.proving``), and
putting it all together (``flows.resolve``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core import facts
from qlock.core.canon import decode_text
from qlock.core.digest import blake3_of
from qlock.core.lock import Lock, SuiteFile, SuitePin
from qlock.core.source import shown_source
from qlock.core.spec import SettingSpec, Spec, SuiteSpec, suite_points
from qlock.engines.interface import padded_tokens
from qlock.errors import InputError, QlockError
from qlock.flows.data_files import located
from qlock.flows.kinds import EngineShape, SuiteKind, engine_shape, params_of, suite_kind
from qlock.flows.proving import Exam
from qlock.world.interface import World

TEMPLATE_KEY = "prompt.template"
MOST_DATA_BYTES = 2 << 30
_SLOTS = 8
"""Where the spec says nothing, and the engine has as many."""


def setting(asked: SettingSpec, old: Lock | None, *, engine: str) -> facts.Setting:
    """A setting completely written out; the fallback that an older lock found is kept.

    llama.cpp pads the context to a multiple of 256 and cuts the batch to the context: the lock says what it will do.

    Args:
        asked: As the spec has it.
        old: An older lock.
        engine: Kind of the engine, which has slots or replicas.

    Raises:
        InputError: The engine does not have as many of them.
    """
    slots = _slots(asked, engine_shape(engine), engine)
    context = padded_tokens(asked.context_tokens)
    batch = min(asked.batch_tokens, context * slots)
    made = facts.Setting(
        name=asked.name,
        context_tokens=context,
        slots=slots,
        slots_requested=slots,
        slots_why="",
        replicas=asked.replicas,
        batch_tokens=batch,
        ubatch_tokens=min(asked.ubatch_tokens, batch),
        threads=asked.threads,
        batch_threads=asked.threads if asked.batch_threads is UNSET else asked.batch_threads,
        cache_type_k=asked.cache_type_k,
        cache_type_v=asked.cache_type_v,
        flash_attention=asked.flash_attention,
        gpu_layers=asked.gpu_layers,
        split_mode=asked.split_mode,
        main_gpu=asked.main_gpu,
        kv_offload=asked.kv_offload,
        op_offload=asked.op_offload,
        swa_full=asked.swa_full,
        repack=asked.repack,
        mmap=asked.mmap,
    )
    for before in old.setting if old is not None else ():
        narrow = fallen_back(made, before.slots_why) if before.slots_why else made
        if before == narrow:
            return before
    return made


def _slots(asked: SettingSpec, shape: EngineShape, engine: str) -> int:
    here = f"setting.{asked.name}"
    if asked.replicas > shape.replicas_max:
        raise InputError(
            f"got `{asked.replicas}`, expected `{shape.replicas_max}`: the engine `{engine}` is one process",
            hint="set `slots`: these are decoded side by side",
        ).within(f"{here}.replicas")
    slots = min(_SLOTS, shape.slots_max) if asked.slots is UNSET else asked.slots
    if slots > shape.slots_max:
        raise InputError(
            f"got `{slots}`, expected `{shape.slots_max}`: a process of the engine `{engine}` does one item at a time",
            hint="set `replicas`: these are several processes",
        ).within(f"{here}.slots")
    return slots


def fallen_back(setting: facts.Setting, why: str) -> facts.Setting:
    """The same setting with one row in every decode."""
    batch = min(setting.batch_tokens, setting.context_tokens)
    return msgspec.structs.replace(
        setting,
        slots=1,
        slots_why=why,
        batch_tokens=batch,
        ubatch_tokens=min(setting.ubatch_tokens, batch),
    )


def exam(
    world: World, spec: Spec, suite: SuiteSpec, *, base: Path, rehash: bool, old: SuitePin | None = None
) -> Exam:
    """A suite's pin and the bytes of its files; of ``old``, commits of the Hub are kept.

    Without a ``limit`` in the spec, ``items_limit`` is unset until the items have been counted.

    Raises:
        InputError: Unknown kind or key, or a value of another type.
        AbsentError: A file is not there.
    """
    here = f"suite.{suite.name}"
    kind = suite_kind(suite.kind, where=f"{here}.kind")
    params = params_of(kind, suite, where=here)
    reference = _reference(spec, kind, where=here)
    try:
        sources = _sources(kind, params, suite)
        pinned = () if old is None else old.file
        files, data = _read(world, sources, base=base, rehash=rehash, pinned=pinned)
        template = data.pop(TEMPLATE_KEY, None)
        text = None if template is None else decode_text(template, name=shown_source(sources[TEMPLATE_KEY]))
    except QlockError as error:
        raise error.within(here) from None
    pin = SuitePin(
        name=suite.name,
        kind=suite.kind,
        ask_version=kind.ask_version,
        grade_version=kind.grade_version,
        repeats=suite.repeats,
        items_limit=suite.limit,
        items_all=suite.limit is UNSET,
        points=suite_points(spec, suite),
        reference=reference,
        params=plain_params(params),
        sampling=suite.sampling,
        prompt=suite.prompt,
        file=files,
    )
    return Exam(pin=pin, data=data, template=text)


def _reference(spec: Spec, kind: SuiteKind, *, where: str) -> str:
    """The point that a suite of this kind is held against; empty where it needs none."""
    if not kind.needs_reference:
        return ""
    if spec.compare is UNSET:
        raise InputError(
            f"a suite of the kind `{kind.kind}` is held against a reference, and the spec names none",
            hint='add `[compare]` with `reference = "MODEL@SETTING"`',
        ).within(where)
    return spec.compare.reference


def _read(
    world: World, sources: dict[str, str], *, base: Path, rehash: bool, pinned: tuple[SuiteFile, ...]
) -> tuple[tuple[SuiteFile, ...], dict[str, bytes]]:
    """The files of a suite, digested and read; key to source in, key to bytes out."""
    files, data = [], {}
    for key, source in sources.items():
        before = next((file for file in pinned if file.key == key), None)
        place = located(world, source, base=base, pinned=before)
        digest = world.digests.digest_file(place.path, cache=world.cache_folder, rehash=rehash)
        data[key] = world.files.read_bounded(place.path, MOST_DATA_BYTES, key)
        if blake3_of(data[key]) != digest.blake3:
            raise InputError(f"`{place.path.name}` changed while it was read").within(key)
        files.append(
            SuiteFile(
                key=key,
                name=place.name,
                requested=place.requested,
                revision=place.revision,
                size_bytes=digest.size_bytes,
                sha256=digest.sha256,
                blake3=digest.blake3,
            )
        )
    return tuple(files), data


def plain_params(params: msgspec.Struct) -> dict[str, object]:
    """A suite's own keys with every default written out, as plain values that TOML can hold."""
    plain: dict[str, object] = msgspec.to_builtins(params)
    return plain


def sources_of(suite: SuiteSpec) -> dict[str, str]:
    """Every source that a suite names, by its key.

    Raises:
        InputError: Unknown kind or key, or a value of another type.
    """
    here = f"suite.{suite.name}"
    kind = suite_kind(suite.kind, where=f"{here}.kind")
    return _sources(kind, params_of(kind, suite, where=here), suite)


def _sources(kind: SuiteKind, params: msgspec.Struct, suite: SuiteSpec) -> dict[str, str]:
    sources = {key: str(getattr(params, key)) for key in kind.sources if getattr(params, key) is not UNSET}
    if suite.prompt.template:
        sources[TEMPLATE_KEY] = suite.prompt.template
    return sources
