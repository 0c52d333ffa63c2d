"""``init``: a first spec to change, with every part of one explained where it stands, and the items that it names.

Does not live here: what the keys mean exactly (``core.spec`` and each suite's ``Params``).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from qlock.core.base import is_name
from qlock.core.escape import for_message
from qlock.errors import InputError, UsageError
from qlock.flows.writing import write_file
from qlock.world.files import make_folder
from qlock.world.interface import World

STARTER = """\
# What you want measured. `qlock resolve specs/{name}.toml` makes it exact, as a lock for this machine; `qlock run` on
# that lock measures it; `qlock diff` on that run compares. Paths are looked up from the project folder, the one above
# specs/. Every key that there is, with its default: docs/spec.md of qlock.
spec_version = 1
name = "{name}"

# Without [engine] it is kind "llama-cpp-python": the llama.cpp inside that Python package. For a build of your own, name
# the folder that holds its llama-server:
# [engine]
# kind = "llama.cpp"
# path = "/opt/llama.cpp/build/bin"

# One table for each model: write your own sources here, or put files of these names into models/. A source is file:PATH,
# hub:OWNER/REPO:Q4_K_M, url:https://…#sha256=…, or wheel:NAME==VERSION/MEMBER for a file in a Python package.
[[model]]
name = "F16"
source = "file:models/model-F16.gguf"

[[model]]
name = "Q4_K_M"
source = "file:models/model-Q4_K_M.gguf"

# One table for each way to run them. Every model meets every setting.
[[setting]]
name = "f16kv"
context_tokens = 2048   # of each slot
slots = 8               # items decoded side by side. Pinned, and compared by diff: another width gives other bits, and
                        # with some quants other answers. Where answers would not repeat, resolve lowers it to 1
threads = 2
# cache_type_k = "q8_0" # KV cache; the other types need flash_attention = true for V
# cache_type_v = "q8_0"
# flash_attention = true

# One table for each exam. `limit = 100` takes the first 100 items; `models` and `settings` choose among the points.
#
# Your own questions, as JSON lines. tasks/own.jsonl holds a few of them to replace. For a chat or instruct model, write
# `messages`: they go through the model's chat template.
#   {{"id": "q1", "messages": [{{"role": "user", "content": "What is 2 + 3?"}}], "expected": 5, "grader": {{"kind": "number"}}}}
# `prompt` is continued as it stands, without a chat template: for base models and for completion. Such answers seldom
# end by themselves, so give a `stop` below.
#   {{"id": "q2", "prompt": "2 + 3 =", "expected": 5, "grader": {{"kind": "number"}}, "slices": {{"topic": "sums"}}}}
[[suite]]
name = "own"
kind = "tasks"
items = "file:tasks/own.jsonl"
[suite.sampling]
temperature = 0.0       # greedy
answer_tokens = 256     # the most tokens of an answer; with a thinking model, thinking counts too
# stop = ["\\n"]         # an answer ends before the first of these

# Perplexity of a text of your own, which must have two windows or more (`windows = 40` takes the first 40):
# [[suite]]
# name = "text"
# kind = "perplexity"
# text = "file:data/text.txt"
# window_tokens = 512

# What the others are compared with, and what is meant to differ. Any other difference makes a comparison invalid.
# Without this table `qlock diff` needs --reference POINT, and a suite `kld` is refused.
[compare]
reference = "F16@f16kv"
treatment = "weights"

# Acceptance rules, fixed before the run; `qlock diff` says pass, fail, or undecided. A small margin takes many items:
# even where nothing differs, 0.02 (two points in a hundred) passes with 189 or more, 0.05 with 73, 0.1 with 35.
[[gate]]
suite = "own"
rule = "non-inferior"
margin_share = 0.02

# [[gate]]
# rule = "speed-at-least"
# suite = "own"
# at_least_ratio = 1.2      # of the reference's tokens per second
# [[gate]]
# rule = "memory-at-most"
# at_most_bytes = 6_000_000_000

# A published score that must come out again before anything else is measured:
# [[anchor]]
# model = "F16"
# suite = "text"
# published = 23.5
# tolerance = 0.3
# source = "https://example.org/where-it-was-published"
"""


ITEMS = b"""\
{"id": "sum", "slices": {"topic": "sums"}, "messages": [{"role": "user", "content": "What is 17 + 25? Answer with the number alone."}], "expected": 42, "grader": {"kind": "number"}}
{"id": "capital", "slices": {"topic": "facts"}, "messages": [{"role": "user", "content": "What is the capital of France?"}], "expected": "Paris", "grader": {"kind": "contains"}}
{"id": "colour", "slices": {"topic": "facts"}, "messages": [{"role": "user", "content": "Which colour is snow? A: green, B: white, C: red. Answer with one letter."}], "expected": "B", "grader": {"kind": "choice", "labels": ["A", "B", "C"]}}
"""
"""A few items to replace."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    spec: Path
    items: Path | None
    """``None`` where there was something in its place already."""


def init(world: World, name: str) -> Started:
    """Write ``specs/NAME.toml`` in the current folder, unless it is there, and what it needs beside the models.

    That is ``tasks/own.jsonl`` and an empty folder ``models``. Whatever is in one of these places already is left alone.

    Args:
        world: The effects.
        name: Of the spec; empty for that of the current folder, where it can be one.

    Raises:
        UsageError: The name cannot be one.
        InputError: The spec is there already.
        AbsentError: A file or folder cannot be written.
    """
    if name and not is_name(name):
        raise UsageError(
            f"got the name `{for_message(name)}`, expected letters, digits and `._+-` that start with a letter or digit"
        )
    chosen = name or (world.cwd.name if is_name(world.cwd.name) else "first")
    spec, items, models = (
        world.cwd / place for place in (f"specs/{chosen}.toml", "tasks/own.jsonl", "models")
    )
    if os.path.lexists(spec):
        raise InputError(
            f"`specs/{spec.name}` is there already", hint="give another name with `qlock init NAME`"
        )
    has_items = os.path.lexists(items)
    if not has_items:
        write_file(world, items, ITEMS)
    if not os.path.lexists(models):
        make_folder(models)
    write_file(world, spec, starter(chosen).encode())
    return Started(spec=spec, items=None if has_items else items)


def starter(name: str) -> str:
    """The text of a first spec."""
    return STARTER.format(name=name)
