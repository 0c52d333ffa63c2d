"""Looking at this machine: files, device and engine against a lock, as findings.

Lives here: rules 1 to 3 before the engine starts, and rules 1, 2 and 4 again after the last item. Does not live here:
the comparing itself (``core.verify``), and what a finding leads to (``flows.run``, ``flows.check``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core.digest import blake3_of, sha256_of
from qlock.core.facts import ModelFile
from qlock.core.lock import Lock, ModelPin, SuiteFile, SuitePin
from qlock.core.spec import ModelSpec
from qlock.core.verify import Finding, Rule, differences, missing, refuses
from qlock.errors import QlockError
from qlock.flows.device import locked_device, opener
from qlock.flows.loaded import LoadedFile, is_untouched, lies_untouched, loaded_file, model_places, touched
from qlock.flows.moving import model_why
from qlock.flows.pinning import MOST_DATA_BYTES, TEMPLATE_KEY
from qlock.flows.places import Places
from qlock.flows.proving import Exam, Opener
from qlock.flows.refusal import is_allowed
from qlock.flows.upstream import Upstream
from qlock.flows.weighing import weigh
from qlock.world.interface import World


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What was found here."""

    findings: tuple[Finding, ...]
    weights: dict[str, tuple[str, ...]]
    """Model name to absolute paths of its files, where all of them are as locked and llama.cpp can run it."""
    other_weights: dict[str, tuple[str, ...]]
    """The same where files have other bytes than locked; for a run that is forced."""
    exams: tuple[Exam, ...]
    """Suites whose files are as locked."""
    other_exams: tuple[Exam, ...]
    """Suites whose files have other bytes than locked; for a run that is forced."""
    variables: dict[str, str]
    """What an engine is given: the lock's variables, and what leaves it the cards that are the lock's device, or most
    like it."""
    pci_bus_id: tuple[str, ...]
    """Where those cards sit."""
    cached: int
    """How many digests came from the cache."""
    loaded: tuple[LoadedFile, ...]
    """Every file of ``weights`` and ``other_weights``, as it was when its digest was looked at."""
    origins: tuple[LoadedFile, ...]
    """The same files where they were found; others only where ``loaded`` are copies of them (``flows.copies``)."""

    def opener(self, open_engine: Opener) -> Opener:
        """The same opener, except that the engine sees these cards alone."""
        return opener(open_engine, self.variables)


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it lies here."""

    paths: tuple[str, ...]
    """Of each file that was found, right or wrong."""
    loaded: tuple[LoadedFile, ...]
    """The same files, as they were."""
    findings: tuple[Finding, ...]
    cached: int


def look(world: World, lock: Lock, places: Places, *, rehash: bool = False) -> Sight:
    """Rules 1 to 3: every file of every model and suite, and the device."""
    findings: list[Finding] = []
    weights: dict[str, tuple[str, ...]] = {}
    others: dict[str, tuple[str, ...]] = {}
    loaded: list[LoadedFile] = []
    cached = 0
    upstream = Upstream(world)
    for model in lock.model:
        seen = _model(world, model, places, upstream, rehash=rehash)
        unknown = _unknown_types(model)
        findings += [*seen.findings, *unknown]
        cached += seen.cached
        if len(seen.paths) == len(model.file) and not unknown:
            (others if seen.findings else weights)[model.name] = seen.paths
            loaded += seen.loaded
    right: list[Exam] = []
    wrong: list[Exam] = []
    for suite in lock.suite:
        exam, found = _suite(world, suite, places)
        findings += found
        if exam is not None:
            (wrong if found else right).append(exam)
    variables, pci_bus_id, found = _devices(world, lock)
    findings += found
    return Sight(
        findings=tuple(findings),
        weights=weights,
        other_weights=others,
        exams=tuple(right),
        other_exams=tuple(wrong),
        variables=variables,
        pci_bus_id=pci_bus_id,
        cached=cached,
        loaded=tuple(loaded),
        origins=tuple(loaded),
    )


def _unknown_types(model: ModelPin) -> list[Finding]:
    """A finding for each tensor type that llama.cpp does not have: the engine would not load the file."""
    return [
        Finding(
            rule="model-files",
            where=f"model.{model.name}.recipe.{row.type}",
            expected="a type of llama.cpp",
            found=row.type,
            effect="output",
            why="needs ik_llama.cpp?",
        )
        for row in model.recipe
        if row.bytes is UNSET
    ]


def _devices(world: World, lock: Lock) -> tuple[dict[str, str], tuple[str, ...], list[Finding]]:
    """Rule 3, and for the engine: its variables, with those that leave it its cards alone, and where these sit."""
    found: list[Finding] = []
    variables = dict(lock.engine[0].environment)
    places: list[str] = []
    for device in lock.device:
        try:
            here = locked_device(world, device)
        except QlockError as error:
            found.append(missing("device", f"device.{device.name}", "present", str(error)))
        else:
            found += differences("device", f"device.{device.name}", device, here.device)
            variables |= here.variables
            places += here.pci_bus_id
    return variables, tuple(places), found


def _model(world: World, model: ModelPin, places: Places, upstream: Upstream, *, rehash: bool) -> _Seen:
    paths: list[str] = []
    loaded: list[LoadedFile] = []
    findings: list[Finding] = []
    cached = 0
    for file, where in zip(model.file, model_places(model), strict=True):
        right, wrong = None, None
        unreadable = "no file of this name was found"
        for candidate in places.candidates(file.name, model.requested, model.revision):
            try:
                # Before its bytes are read, so that whatever happens to it from then on shows.
                seen = loaded_file(where, candidate)
                digest = world.digests.blake3_file(candidate, cache=world.cache_folder, rehash=rehash)
            except QlockError as error:
                unreadable = str(error)
                continue
            cached += digest.cached
            if digest.size_bytes == file.size_bytes and digest.blake3 == file.blake3:
                right = candidate, seen
                break
            wrong = wrong or (candidate, seen)
        if right is not None:
            paths.append(str(right[0]))
            loaded.append(right[1])
        elif wrong is not None:
            paths.append(str(wrong[0]))
            loaded.append(wrong[1])
            found = _changed(world, model, file, wrong[0], where)
            findings += _with_why(found, upstream.why_changed(model, file))
        else:
            found = [missing("model-files", where, "present", unreadable)]
            findings += _with_why(found, upstream.why_absent(model, file))
    return _Seen(paths=tuple(paths), loaded=tuple(loaded), findings=tuple(findings), cached=cached)


def _with_why(findings: list[Finding], more: str) -> list[Finding]:
    if not more:
        return findings
    return [
        msgspec.structs.replace(finding, why=f"{finding.why}; {more}" if finding.why else more)
        for finding in findings
    ]


def _changed(world: World, model: ModelPin, file: ModelFile, path: Path, where: str) -> list[Finding]:
    """What a file of the right name and other bytes has otherwise, and in which part of the model."""
    try:
        digest = world.digests.digest_file(path, cache=world.cache_folder)
    except QlockError as error:
        return [missing("model-files", where, "readable", str(error))]
    seen = ModelFile(
        name=file.name,
        role=file.role,
        size_bytes=digest.size_bytes,
        sha256=digest.sha256,
        blake3=digest.blake3,
    )
    why = _model_difference(world, model, path) if len(model.file) == 1 else "a shard has other bytes"
    return [
        msgspec.structs.replace(finding, why=why) for finding in differences("model-files", where, file, seen)
    ]


def _model_difference(world: World, model: ModelPin, path: Path) -> str:
    asked = ModelSpec(name=model.name, source=model.requested, trained=model.trained)
    try:
        return model_why(model, weigh(world, asked, (path,), rehash=False).pin)
    except QlockError as error:
        return error.message


def _suite(world: World, suite: SuitePin, places: Places) -> tuple[Exam | None, list[Finding]]:
    """The exam out of the files that were found, right or wrong; ``None`` where one is not to be had."""
    data: dict[str, bytes] = {}
    findings: list[Finding] = []
    for file in suite.file:
        where = f"suite.{suite.name}.file.{file.key}"
        found = _data(world, file, places)
        match found:
            case bytes():
                data[file.key] = found
                seen = msgspec.structs.replace(
                    file, size_bytes=len(found), sha256=sha256_of(found), blake3=blake3_of(found)
                )
                findings += differences("suite-files", where, file, seen)
            case str() as why:
                findings.append(missing("suite-files", where, "present", why))
    if len(data) < len(suite.file):
        return None, findings
    template = data.pop(TEMPLATE_KEY, None)
    text = None if template is None else template.decode(errors="replace")
    return Exam(pin=suite, data=data, template=text), findings


def _data(world: World, file: SuiteFile, places: Places) -> bytes | str:
    """The bytes of the right file, else of one of its name; why there is none otherwise."""
    wrong: bytes | None = None
    why = f"no file called `{file.name}` was found"
    for candidate in places.candidates(file.name, file.requested, file.revision):
        try:
            data = world.files.read_bounded(candidate, MOST_DATA_BYTES, file.key)
        except QlockError as error:
            why = str(error)
            continue
        if blake3_of(data) == file.blake3:
            return data
        wrong = data if wrong is None else wrong
    return why if wrong is None else wrong


def is_as_loaded(lock: Lock, sight: Sight, kept: Mapping[Path, LoadedFile]) -> bool:
    """Rule 8 for models and kept files in no time, for whoever is being ended: untouched ones are as they were looked at.

    Args:
        lock: What is locked.
        sight: What was found before the run.
        kept: Every kept file that was used, as it was when it was looked at.
    """
    before = {file.where: file for file in sight.loaded}
    weights = {**sight.other_weights, **sight.weights}
    for model in lock.model:
        for path, where in zip(weights.get(model.name, ()), model_places(model), strict=False):
            if not lies_untouched(before[where], Path(path)):
                return False
    return all(lies_untouched(seen, path) for path, seen in kept.items())


def look_again(world: World, lock: Lock, sight: Sight, places: Places) -> list[Finding]:
    """Rule 8 for files: the very files that were loaded have their bytes still and had them all the while.

    The suites' files are only held against their digests: what was asked came out of bytes that were in memory.

    Args:
        world: The effects.
        lock: What is locked.
        sight: What was found before the run.
        places: Where the suites' files lie.
    """
    rule: Rule = "after-the-run"
    found: list[Finding] = []
    before = {file.where: file for file in sight.loaded}
    weights = {**sight.other_weights, **sight.weights}
    for model in lock.model:
        for path, file in zip(weights.get(model.name, ()), model.file, strict=False):
            where = f"model.{model.name}.file.{file.name}"
            try:
                digest = world.digests.blake3_file(Path(path), cache=world.cache_folder)
                now = loaded_file(where, Path(path))
            except QlockError as error:
                found.append(missing(rule, where, "present", str(error)))
                continue
            if digest.blake3 != file.blake3:
                found.append(
                    Finding(
                        rule=rule,
                        where=f"{where}.blake3",
                        expected=str(file.blake3),
                        found=digest.blake3,
                        effect="output",
                        why="the file was replaced while the run went on",
                    )
                )
            elif not is_untouched(before[where], now):
                found.append(touched(where))
    for suite in lock.suite:
        found += [msgspec.structs.replace(finding, rule=rule) for finding in _suite(world, suite, places)[1]]
    return found


def stopping_findings(lock: Lock, sight: Sight, allow: tuple[str, ...]) -> tuple[Finding, ...]:
    """Findings that end the run before it starts; what is not to be had at all cannot be allowed."""
    models = sight.weights.keys() | sight.other_weights.keys()
    suites = {exam.pin.name for exam in (*sight.exams, *sight.other_exams)}
    absent = [f"model.{model.name}." for model in lock.model if model.name not in models]
    absent += [f"suite.{suite.name}." for suite in lock.suite if suite.name not in suites]
    return tuple(
        finding
        for finding in sight.findings
        if refuses(finding) and (not is_allowed(finding, allow) or finding.where.startswith(tuple(absent)))
    )
