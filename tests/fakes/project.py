"""A small project in a folder: models, a spec, items, and an engine in memory; resolving and running it takes a moment.

The models are GGUF files of one tensor, packed byte by byte; the world is `tests/fakes/world.py`. What is written is
real: specs, locks, run folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qlock.core.base import Base
from qlock.core.record import SealedJob
from qlock.errors import QlockError
from qlock.flows import resolve, run
from qlock.flows.preparing import Progress
from qlock.flows.resolve import Resolved
from qlock.flows.run import Ran
from qlock.flows.run_folder import RunFolder
from qlock.world.hub import open_hub
from qlock.world.hub.remote import RealRemote
from qlock.world.interface import World
from tests.broken.make_gguf import F32, STRING, U32, array, gguf, kv, tensor
from tests.fakes.engine import Script
from tests.fakes.hub import FakeHub
from tests.fakes.world import CPU, fake_world

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"

SPEC = """\
spec_version = 1
name = "small"

{models}
[[setting]]
name = "plain"
context_tokens = 2048
slots = 4

[[suite]]
name = "digits"
kind = "tasks"
items = "file:tasks/digits.jsonl"
[suite.sampling]
answer_tokens = 8

[[suite]]
name = "text"
kind = "perplexity"
text = "file:data/text.txt"
window_tokens = 64
windows = 3
"""


def tiny_gguf(
    seed: int = 1, *, type_id: int = 0, template: str = TEMPLATE, tokens: int = 2, **keys: int
) -> bytes:
    """A whole GGUF of one tensor; ``keys`` are counts of the architecture, such as ``context_length``."""
    counts = {"context_length": 2048} | keys
    fields = [
        kv("general.architecture", STRING, "llama"),
        *(kv(f"llama.{key}", U32, count) for key, count in counts.items()),
        kv("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, [chr(ord("a") + token) for token in range(tokens)]),
        kv("tokenizer.chat_template", STRING, template),
        kv("general.sampling.temp", F32, 0.5),
    ]
    return gguf(fields, [tensor("token_embd.weight", (32,), type_id)], bytes([seed]) * 128)


def items_jsonl(count: int, *, start: int = 0) -> bytes:
    """Questions with a number for an answer; a third of them in slice ``a``."""
    rows = [
        {
            "id": f"q{number:02d}",
            "prompt": f"{number} and {number} is",
            "expected": str(number % 10),
            "grader": {"kind": "exact"},
            "slices": {"part": "a" if number % 3 == 0 else "b"},
        }
        for number in range(start, start + count)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def spec_text(models: Mapping[str, str], text: str = SPEC) -> str:
    """The spec with these models, name to source."""
    tables = "".join(
        f'[[model]]\nname = "{name}"\nsource = "{source}"\n\n' for name, source in models.items()
    )
    return text.replace("{models}\n", tables)


def refusal(project: Project, kind: type[QlockError], **asked: Any) -> tuple[str, str]:
    """Message and hint of the error with which a resolve ends."""
    with pytest.raises(kind) as caught:
        project.resolve(**asked)
    return str(caught.value), caught.value.hint


class Project:
    """A project folder with a world and a script for its engine.

    Args:
        place: An empty folder; the project lies in ``place/work``.
        name: Name of the project's folder.
        items: How many questions the exam has.
        tokens: How many tokens the vocabulary of each model has.
    """

    def __init__(self, place: Path, *, name: str = "work", items: int = 8, tokens: int = 2) -> None:
        self.world: World = fake_world(place)
        self.path = place / name
        self.script = Script(place / "engine")
        self.models = {"A": "file:models/a.gguf", "B": "file:models/b.gguf"}
        self.progress: list[Progress] = []
        self.steps: list[str] = []
        """What resolving told of itself."""
        self.told: list[str] = []
        """What the Hub and plain addresses announced."""
        self.write("models/a.gguf", tiny_gguf(1, tokens=tokens))
        self.write("models/b.gguf", tiny_gguf(2, tokens=tokens))
        self.write("tasks/digits.jsonl", items_jsonl(items))
        self.write("data/text.txt", b"The sea moved, the lamp turned, and a ship went by. " * 8)
        self.write_spec()

    def write(self, name: str, data: bytes | str) -> Path:
        """Put a file of the project in place, as another file than before."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(data.encode() if isinstance(data, str) else data)
        new.replace(path)
        return path

    def write_spec(self, change: Callable[[str], str] = lambda text: text) -> None:
        """Write ``specs/small.toml`` with the models of now, changed by ``change``."""
        self.write("specs/small.toml", change(spec_text(self.models)))

    @property
    def lock_path(self) -> Path:
        return self.path / "locks" / f"small@{CPU.name}.toml"

    @property
    def runs(self) -> Path:
        """The folder of all runs."""
        return self.path / "runs" / self.lock_path.stem

    def resolve(self, **asked: Any) -> Resolved:
        """Resolve the spec; nothing is written."""
        order = resolve.Asked(spec_path=self.path / "specs/small.toml", tell=self.steps.append, **asked)
        return resolve.resolve(self.world, order, self.script.open_engine)

    def lock(self, **asked: Any) -> Resolved:
        """Resolve the spec and write the lock, as the command line does when nothing moved."""
        resolved = self.resolve(**asked)
        assert resolved.moves == ()
        resolved.path.parent.mkdir(exist_ok=True)
        resolved.path.write_bytes(resolved.data)
        return resolved

    def run(self, talk: Callable[[Progress], None] | None = None, **asked: Any) -> Ran:
        """Run the lock."""
        order = run.Asked(**({"lock_path": self.lock_path} | asked))
        return run.run(self.world, order, self.script.open_engine, talk or self.progress.append)

    def change_world(self, **parts: Any) -> None:
        """Put other parts into the world."""
        self.world = msgspec.structs.replace(self.world, **parts)

    def connect(self, hub: FakeHub, **environment: str) -> None:
        """Let the world ask this Hub, and keep what it fetches beside the project."""
        place = self.path.parent
        variables = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(place / "hf"), "HOME": str(place)}
        variables |= environment
        clock, announce = self.world.clock, self.told.append
        folder = self.world.cache_folder / "url"
        self.change_world(
            environment=variables,
            hub=open_hub(variables, clock=clock, announce=announce),
            remote=RealRemote(variables, folder=folder, clock=clock, announce=announce),
        )


def sealed(project: Project) -> Ran:
    """A run that ends well."""
    ran = project.run()
    assert ran.state == "sealed"
    return ran


def undisturbed(project: Project) -> str:
    """The digest of the same lock's run without any trouble."""
    return project.run(repeat_lock=True).answers_digest


def folder_of(project: Project, ran: Ran) -> RunFolder:
    """The folder of a run."""
    assert ran.folder is not None
    return RunFolder(project.world, ran.folder)


def is_whole(ran: Ran) -> bool:
    """Whether a run has its seal."""
    return ran.folder is not None and (ran.folder / "seal.json").exists()


def wheres(ran: Ran) -> list[tuple[str, str]]:
    """Rule and place of each finding."""
    return [(finding.rule, finding.where) for finding in ran.findings]


class Killed(BaseException):
    """Stands for a kill: nothing in qlock catches it."""


def kill_after(project: Project, rows: int, **asked: Any) -> None:
    """Run, and kill it once so many rows are stored."""
    stored = 0

    def talk(progress: Progress) -> None:
        nonlocal stored
        stored += progress.tokens > 0
        if stored > rows:
            raise Killed

    with pytest.raises(Killed):
        project.run(talk, **asked)


def sealed_jobs(project: Project, ran: Ran) -> dict[str, SealedJob]:
    seal = folder_of(project, ran).seal()
    assert seal is not None
    return {job.job: job for job in seal.job}


def with_a_third_model(project: Project) -> None:
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    project.lock()


def edit(path: Path, old: bytes, new: bytes) -> None:
    """Change the first of some bytes in a file; they must be there."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def fields_of(kind: type[Base], *without: str) -> list[str]:
    """Names of a struct's fields."""
    return [name for name in kind.__struct_fields__ if name not in without]


def other_than(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value} changed"
        case tuple():
            return (*value, *(value[:1] or ("more",)))
        case _:
            raise NotImplementedError(value)
