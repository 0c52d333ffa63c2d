"""Change one thing at a time in a locked project and print what `qlock run` says: exit code and finding.

A tiny model is resolved and run for real. Then each mutation is made on a copy, `qlock run` is asked, and the mutation
counts as caught when the exit code is the one that the kind of change must give. Between the mutations untouched copies
are run: a refusal there would be a false one. Good figures: all caught, no false refusal. Exit 1 otherwise.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import llama_cpp

from tests.live.tiny_project import lock_of, make, qlock

CLEAN_RUNS = 5
Mutation = Callable[[Path], tuple[str, ...]]
"""Changes a copy of the project; gives further words for the command line."""


def flip(path: Path, where: float = 0.7) -> None:
    """Turn the bits of one byte."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 0xFF
    path.write_bytes(data)


def on_file(name: str, change: Callable[[bytes], bytes]) -> Mutation:
    """A mutation of one file's bytes."""

    def mutate(folder: Path) -> tuple[str, ...]:
        path = next(folder.glob(name))
        path.write_bytes(change(path.read_bytes()))
        return ()

    return mutate


def flipped(name: str, where: float = 0.7) -> Mutation:
    """A mutation of one byte of a file."""

    def mutate(folder: Path) -> tuple[str, ...]:
        flip(next(folder.glob(name)), where)
        return ()

    return mutate


def library(name: str, where: float) -> Mutation:
    """A copy of the engine's libraries with one byte of one of them changed, given with --engine."""

    def mutate(folder: Path) -> tuple[str, ...]:
        build = folder / "build"
        shutil.copytree(Path(llama_cpp.__file__).parent / "lib", build)
        flip(build / name, where)
        return ("--engine", str(build))

    return mutate


def unlink(name: str) -> Mutation:
    """A mutation that takes a file away."""

    def mutate(folder: Path) -> tuple[str, ...]:
        next(folder.glob(name)).unlink()
        return ()

    return mutate


def replaced(name: str, old: str, new: str) -> Mutation:
    """A mutation of some text."""
    return on_file(name, lambda data: data.replace(old.encode(), new.encode(), 1))


MUTATIONS: dict[str, tuple[Mutation, tuple[int, ...]]] = {
    "model: one byte of the tensors": (flipped("models/tiny.gguf"), (3,)),
    "model: one byte of the vocabulary": (flipped("models/tiny.gguf", 0.01), (3,)),
    "model: last byte cut off": (on_file("models/tiny.gguf", lambda data: data[:-1]), (3,)),
    "model: one byte more": (on_file("models/tiny.gguf", lambda data: data + b"\0"), (3,)),
    "model: emptied": (on_file("models/tiny.gguf", lambda _: b""), (3,)),
    "model: gone": (unlink("models/tiny.gguf"), (8,)),
    "items: one question": (replaced("tasks/exam.jsonl", "is the sea near?", "is the sea far?"), (3,)),
    "items: one expected answer": (replaced("tasks/exam.jsonl", '"yes"', '"no"'), (3,)),
    "items: one line less": (on_file("tasks/exam.jsonl", lambda data: data.split(b"\n", 1)[1]), (3,)),
    "items: gone": (unlink("tasks/exam.jsonl"), (8,)),
    "text: one letter": (replaced("data/text.txt", "sea", "tea"), (3,)),
    "text: CRLF": (on_file("data/text.txt", lambda data: data.replace(b". ", b".\r\n")), (3,)),
    "libggml-cpu.so: one byte of data": (library("libggml-cpu.so", 0.97), (3, 7)),
    "libggml-base.so: last byte": (library("libggml-base.so", 0.99999), (3,)),
    "libllama.so: last byte": (library("libllama.so", 0.99999), (3,)),
    "lock: context": (replaced("locks/*.toml", "context_tokens = 512", "context_tokens = 256"), (6,)),
    "lock: KV cache": (replaced("locks/*.toml", 'cache_type_k = "f16"', 'cache_type_k = "q8_0"'), (6,)),
    "lock: temperature": (replaced("locks/*.toml", "temperature = 1.5", "temperature = 1.6"), (6,)),
    "lock: a comment": (replaced("locks/*.toml", "Do not edit", "Do edit"), (6,)),
    "lock: last line gone": (on_file("locks/*.toml", lambda data: data[: data[:-1].rindex(b"\n") + 1]), (6,)),
    "lock: newer version": (replaced("locks/*.toml", "lock_version = 1", "lock_version = 2"), (6,)),
    "lock: git conflict": (replaced("locks/*.toml", "[[point]]", "<<<<<<< HEAD\n[[point]]"), (6,)),
    "spec: temperature": (replaced("specs/tiny.toml", "temperature = 1.5", "temperature = 1.4"), (1,)),
    "spec: a model's name": (
        replaced("specs/tiny.toml", 'name = "tiny"\nsource', 'name = "other"\nsource'),
        (1,),
    ),
}


def first_words(text: str) -> str:
    """What qlock said first."""
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    return (lines[0].removeprefix("error: ") if lines else "")[:100]


def ask(resolved: Path, mutation: Mutation | None) -> subprocess.CompletedProcess[str]:
    """Run a copy of the project, mutated or not."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "project"
        shutil.copytree(resolved, folder)
        words = mutation(folder) if mutation else ()
        return qlock("run", lock_of(folder), *words, QLOCK_CACHE=str(Path(place) / "cache"))


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as place:
        resolved = Path(place) / "project"
        made = qlock("resolve", make(resolved, items=4, answer_tokens=8))
        if made.returncode != 0:
            print(made.stderr)
            return 1
        caught = 0
        for name, (mutation, codes) in MUTATIONS.items():
            said = ask(resolved, mutation)
            good = said.returncode in codes
            caught += good
            print(
                f"{'caught' if good else 'MISSED':7} exit {said.returncode}  {name:36} {first_words(said.stderr)}"
            )
        clean = sum(ask(resolved, None).returncode == 0 for _ in range(CLEAN_RUNS))
        print(
            f"{caught} of {len(MUTATIONS)} mutations caught; {CLEAN_RUNS - clean} of {CLEAN_RUNS} clean runs refused"
        )
        return 0 if (caught, clean) == (len(MUTATIONS), CLEAN_RUNS) else 1


if __name__ == "__main__":
    sys.exit(main())
