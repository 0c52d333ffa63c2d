"""One Hypothesis strategy per struct of the core, within the ranges that the struct states; all are registered.

Hypothesis builds msgspec structs from their types but looks at no `msgspec.Meta`. So the ranges are read here from
msgspec's own description of a struct, and a new field is drawn from the day it exists. Structs with rules across
fields (a setting, a spec, a lock, a record) get a strategy of their own below.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, inspect

from qlock.core import (
    effects,
    exchange,
    facts,
    lock,
    plan,
    recipe,
    record,
    rules,
    sbatch,
    spec,
    tasks,
    verify,
)
from qlock.core.base import Base
from qlock.core.lock import Lock, MissingPin, PointPin, unset_pins
from qlock.core.record import Closing, Part, Record, Row, answers_digest
from qlock.core.spec import PointSpec, SettingSpec, Spec, SuiteSpec

T = TypeVar("T")
B = TypeVar("B", bound=Base)

MODULES = (effects, exchange, facts, lock, plan, recipe, record, rules, sbatch, spec, tasks, verify)
INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)

_HEAD = string.ascii_letters + string.digits
NAMES = st.builds(str.__add__, st.sampled_from(_HEAD), st.text(_HEAD + "._+-", max_size=6))
"""Names of models, settings and suites."""
PLAIN_NAMES = st.text(_HEAD + "_+-", min_size=1, max_size=6).filter(lambda name: name[0] in _HEAD)
"""Names without a dot: two suites of such names never have jobs of one name."""
POINT_NAMES = st.builds("{}@{}".format, NAMES, NAMES)
DIGESTS = st.builds("{}:{:064x}".format, st.sampled_from(["blake3", "sha256"]), st.integers(0, 2**256 - 1))
DAYS = st.dates().map(lambda day: day.isoformat())
TEXTS = st.text(max_size=12)

PLAIN = st.recursive(
    st.booleans() | INT64 | FINITE | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
"""Whatever TOML and JSON both hold."""

_OF_PATTERN = {
    r"^[A-Za-z0-9][A-Za-z0-9._+-]*\Z": NAMES,
    r"^[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9][A-Za-z0-9._+-]*\Z": POINT_NAMES,
    r"^(blake3|sha256):[0-9a-f]{64}\Z": DIGESTS,
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z": DAYS,
    r"^[A-Za-z0-9][A-Za-z0-9_.,:+=/*()@-]*\Z": NAMES,
    r"^([0-9]{1,4}-)?[0-9]{1,3}(:[0-9]{2}){0,2}\Z": st.sampled_from(["30", "8:00:00", "1-12:00:00"]),
    r"^[^\x00-\x1f\x7f]+\Z": st.text(string.printable[:95], min_size=1, max_size=12),
    r"^[A-Za-z0-9_./$][A-Za-z0-9_./${}:=+-]*\Z": st.sampled_from(["$TMPDIR", "/local/${USER}"]),
    r"^--[a-z][^\x00-\x1f\x7f#]*\Z": st.sampled_from(["--constraint=a100", "--exclusive"]),
}


def values(info: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of one field as msgspec describes it."""
    match info:
        case inspect.Metadata(type=inner):
            return values(inner)
        case inspect.StructType(cls=kind):
            return st.deferred(lambda: strategy(kind))
        case inspect.UnionType(types=types):
            return st.one_of([values(inner) for inner in types])
        case inspect.VarTupleType(item_type=inner, min_length=least):
            return st.lists(values(inner), min_size=least or 0, max_size=2).map(tuple)
        case inspect.DictType(key_type=inspect.StrType(), value_type=inner):
            return st.dictionaries(TEXTS, values(inner), max_size=2)
        case inspect.LiteralType(values=choices):
            return st.sampled_from(list(choices))
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType() | inspect.CustomType():
            return PLAIN
        case _:
            return _scalars(info)


def _scalars(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(gt=None, lt=None, ge=least, le=most):
            return st.integers(-(2**63) if least is None else least, 2**63 - 1 if most is None else most)
        case inspect.FloatType(lt=None, gt=above, ge=least, le=most):
            low = least if above is None else above
            return st.floats(low, most, exclude_min=above is not None, allow_nan=False, allow_infinity=False)
        case inspect.StrType(pattern=None, min_length=least):
            return st.text(min_size=least or 0, max_size=12)
        case inspect.StrType(pattern=str(pattern)):
            return _OF_PATTERN[pattern]
        case _:
            raise NotImplementedError(info)


def fields_of(kind: type[B]) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for every field of a struct; what may be left out is left out at times."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {
        field.name: st.just(UNSET) | values(field.type) if field.default is UNSET else values(field.type)
        for field in info.fields
    }


def _settings() -> st.SearchStrategy[SettingSpec]:
    def built(fields: dict[str, Any]) -> SettingSpec:
        fields["flash_attention"] |= fields["cache_type_v"] not in ("f32", "f16", "bf16")
        fields["ubatch_tokens"] = min(fields["ubatch_tokens"], fields["batch_tokens"])
        return SettingSpec(**fields)

    return st.fixed_dictionaries(fields_of(SettingSpec)).map(built)


def _engines() -> st.SearchStrategy[spec.EngineSpec]:
    names = st.sampled_from(["GGML_CUDA_DISABLE_GRAPHS", "LD_LIBRARY_PATH", "_x1"])
    variables = st.dictionaries(names, st.text(string.printable, max_size=12), max_size=2)
    return st.builds(spec.EngineSpec, **fields_of(spec.EngineSpec) | {"environment": variables})


def _named(draw: st.DrawFn, kind: type[B], *, names: st.SearchStrategy[str] = NAMES) -> tuple[B, ...]:
    """One or two structs of a kind, each with a name of its own."""
    chosen = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    return tuple(msgspec.structs.replace(draw(strategy(kind)), name=name) for name in chosen)


@st.composite
def _specs(draw: st.DrawFn) -> Spec:
    models, settings = _named(draw, spec.ModelSpec), _named(draw, SettingSpec)
    pairs = [PointSpec(model=model.name, setting=setting.name) for model in models for setting in settings]
    points = draw(st.just(()) | st.lists(st.sampled_from(pairs), unique=True, min_size=1).map(tuple))
    some_models = st.sampled_from([pair.model for pair in points or pairs]).map(lambda name: (name,))
    own_keys = frozenset(SuiteSpec.__struct_fields__)
    params = st.dictionaries(TEXTS.filter(lambda key: key not in own_keys), PLAIN, max_size=3)
    suites = tuple(
        msgspec.structs.replace(
            suite, models=draw(st.just(UNSET) | some_models), settings=UNSET, params=draw(params)
        )
        for suite in _named(draw, SuiteSpec, names=PLAIN_NAMES)
    )
    suite = suites[-1].name
    sitting = [pair for pair in points or pairs if suites[-1].models in (UNSET, (pair.model,))]
    model, setting = sitting[-1].model, sitting[-1].setting
    anchor = strategy(spec.AnchorSpec).map(
        lambda one: (msgspec.structs.replace(one, model=model, suite=suite, setting=setting),)
    )
    gate = st.one_of([strategy(kind) for kind in get_args(rules.GateSpec)]).map(
        lambda one: (msgspec.structs.replace(one, suite=suite) if rules.suite_of(one) else one,)
    )
    point = sitting[-1]
    compare = strategy(spec.CompareSpec).map(
        lambda one: msgspec.structs.replace(one, reference=f"{point.model}@{point.setting}")
    )
    return Spec(
        spec_version=spec.SPEC_VERSION,
        name=draw(NAMES),
        engine=draw(strategy(spec.EngineSpec)),
        device=draw(strategy(spec.DeviceSpec)),
        model=models,
        setting=settings,
        suite=suites,
        point=points,
        anchor=draw(st.just(()) | anchor),
        compare=draw(st.just(UNSET) | compare) if len(sitting) > 1 else UNSET,
        gate=draw(st.just(()) | gate),
        slurm=draw(strategy(sbatch.SlurmSpec)),
    )


@st.composite
def _locks(draw: st.DrawFn) -> Lock:
    engines, devices = _named(draw, facts.Engine), _named(draw, facts.Device)
    models, settings = _named(draw, lock.ModelPin), _named(draw, facts.Setting)
    suites = _named(draw, lock.SuitePin, names=PLAIN_NAMES)
    asked = [msgspec.structs.replace(draw(strategy(lock.PromptsPin)), suite=suite.name) for suite in suites]
    points = tuple(
        msgspec.structs.replace(
            draw(strategy(PointPin)),
            name=f"{model.name}@{setting.name}",
            model=model.name,
            setting=setting.name,
            engine=engines[0].name,
            device=devices[0].name,
            prompts=tuple(asked),
        )
        for model in models
        for setting in settings
    )
    names = tuple(point.name for point in points)
    whole = Lock(
        lock_version=lock.LOCK_VERSION,
        spec_digest=draw(DIGESTS),
        body_digest="",
        frozen_date=draw(DAYS),
        name=draw(NAMES),
        engine=engines,
        device=devices,
        model=models,
        setting=settings,
        suite=tuple(
            msgspec.structs.replace(
                suite,
                points=names,
                reference=draw(st.sampled_from(["", *names])),
                repeats=draw(st.integers(1, 3)),
            )
            for suite in suites
        ),
        point=points,
        anchor=(),
        compare=UNSET,
        gate=(),
        missing=(),
    )
    missing = tuple(msgspec.structs.replace(draw(strategy(MissingPin)), pin=pin) for pin in unset_pins(whole))
    return msgspec.structs.replace(whole, missing=missing)


@st.composite
def _records(draw: st.DrawFn) -> Record:
    ids = draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True))
    rows = tuple(msgspec.structs.replace(draw(strategy(Row)), item=item) for item in ids)
    header = msgspec.structs.replace(
        draw(strategy(record.Header)), record_version=record.RECORD_VERSION, items=len(rows), part=UNSET
    )
    if draw(st.booleans()):
        start = draw(st.integers(0, 10**6))
        part = Part(start=start, stop=start + len(rows))
        header = msgspec.structs.replace(header, items=part.stop + draw(st.integers(0, 10**6)), part=part)
    closing = Closing(items=len(rows), answers_digest=answers_digest(rows))
    return Record(header=header, rows=rows, closing=draw(st.sampled_from([None, closing])), torn_bytes=0)


def _parts() -> st.SearchStrategy[Part]:
    return st.builds(
        lambda start, length: Part(start=start, stop=start + length),
        st.integers(0, 2**62),
        st.integers(1, 2**62),
    )


def _headers() -> st.SearchStrategy[record.Header]:
    return st.builds(record.Header, **{**fields_of(record.Header), "part": st.just(UNSET)})


_OWN: dict[type[Base], Callable[[], st.SearchStrategy[Any]]] = {
    SettingSpec: _settings,
    spec.EngineSpec: _engines,
    Spec: _specs,
    Lock: _locks,
    Record: _records,
    Part: _parts,
    record.Header: _headers,
}
_made: dict[type[Base], st.SearchStrategy[Any]] = {}


def strategy(kind: type[B]) -> st.SearchStrategy[B]:
    """The strategy of a struct."""
    if kind not in _made:
        _made[kind] = _OWN[kind]() if kind in _OWN else st.builds(kind, **fields_of(kind))
    return _made[kind]


def structs() -> tuple[type[Base], ...]:
    """Every struct of the core's nouns, in the order of modules."""
    found = [
        thing
        for module in MODULES
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Base) and thing is not Base
    ]
    return tuple(dict.fromkeys(found))


for _kind in structs():
    st.register_type_strategy(_kind, strategy(_kind))
