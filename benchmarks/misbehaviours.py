"""Let a llama-server misbehave in one way at a time and print what `qlock run` says: exit code and message.

A project is resolved with a scripted server that behaves; then the server gets one misbehaviour, and the same lock is
run. Caught means: the exit code is the one that stands beside the misbehaviour. Those that show only after a deadline
of many minutes are played to the engine alone, with a short one. Good figures: all caught. Exit 1 otherwise.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from qlock.engines.interface import Generate, Load, greedy
from qlock.engines.llama_cpp import Deadlines, open_engine
from qlock.errors import EngineError
from tests.fakes.decoder import SETTING
from tests.fakes.llama_server import build
from tests.live.tiny_project import lock_of, make, qlock

Behaviour = dict[str, object]

AT_RUN: tuple[tuple[Behaviour, int], ...] = (
    ({}, 0),
    ({"bad_flag": "--no-mmap"}, 7),
    ({"no_help": True}, 7),
    ({"unknown_option": "--turbo"}, 3),
    ({"lacks_option": "--special"}, 3),
    ({"floods": True}, 7),
    ({"props_404": True}, 7),
    ({"props_empty": True}, 7),
    ({"props_router": True}, 7),
    ({"props_types": True}, 7),
    ({"props_lacks": "total_slots"}, 7),
    ({"log_lacks": "n_batch  "}, 7),
    ({"swap_model": True}, 7),
    ({"other_path": "/other.gguf"}, 7),
    ({"replaces_model": True}, 3),
    ({"default_is": {"temperature": 0.8}}, 3),
    ({"default_is": {"turbo": 1}}, 3),
    ({"default_lacks": "seed"}, 3),
    ({"no_defaults": True}, 3),
    ({"props_say": {"chat_template": "{{ of_the_model }}"}}, 3),
    ({"props_lacks": "chat_template"}, 3),
    ({"props_say": {"build_info": "b1-other"}}, 3),
    ({"props_say": {"modalities": {"vision": True}}}, 3),
    ({"kv_unified": True}, 3),
    ({"cache_on": "CUDA0"}, 3),
    ({"log_lacks": "KV buffer"}, 7),
    ({"slots_divide": True}, 3),
    ({"uses": ["0000:18:00.0"]}, 3),
    ({"tokenize_nonsense": True}, 7),
    ({"tokenize_status": 500}, 7),
    ({"tokenize_adds": "  "}, 7),
    ({"gibberish": True}, 3),
    ({"gibberish_long": True}, 3),
    ({"loop": True}, 3),
    ({"ends": True}, 3),
    ({"says": "hello, w"}, 3),
    ({"leaks": "process"}, 3),
    ({"echoes": {"temperature": 0.8}}, 7),
    ({"echoes": {"turbo": 1}}, 7),
    ({"echo_lacks": "seed"}, 7),
    ({"cached": 2}, 7),
    ({"evaluates_fewer": 1}, 7),
    ({"swap_later": True}, 7),
    ({"answers": "<html>"}, 7),
    ({"answers": "{}"}, 7),
    ({"status": 502}, 7),
    ({"answer_lacks": "tokens"}, 7),
    ({"stop_type": "none"}, 7),
    ({"stops_at": 3}, 7),
    ({"ctx400": True}, 7),
    ({"die_on_item": 1}, 7),
    ({"die_on_text": ["is the sea near", 1]}, 5),
    ({"die_on_text": ["is the sea near", 2]}, 0),
)
"""Misbehaviours, and the exit code that each must give; a server that dies among the items is started again, and one
that always dies at the same item leaves it undone."""

AT_ENGINE: tuple[tuple[Behaviour, Deadlines], ...] = (
    ({"health_503": True}, Deadlines(load_s=0.7)),
    ({"mute": True}, Deadlines(load_s=0.7)),
    ({"wedge": True}, Deadlines(progress_s=0.7)),
    ({"wedge": True, "ignores_sigterm": True}, Deadlines(progress_s=0.7, close_s=0.2)),
)
"""Misbehaviours that are seen after a deadline, and a short one."""


def project(folder: Path, server: Path) -> Path:
    """A small project on this server, resolved; gives its lock."""
    spec = make(folder, slots=1, items=2, answer_tokens=8)
    before, _, exam = spec.read_text().partition('[[suite]]\nname = "text"')
    _, _, exam = exam.partition("[[suite]]")
    engine = f'[engine]\nkind = "llama.cpp"\npath = "{server}"\n\n[[model]]'
    spec.write_text(before.replace("[[model]]", engine, 1) + "[[suite]]" + exam)
    resolved = qlock("resolve", spec, cwd=folder)
    if resolved.returncode:
        sys.exit(resolved.stderr)
    return lock_of(folder)


def at_run(folder: Path, lock: Path, server: Path, behaviour: Behaviour) -> tuple[int, str]:
    """Exit code of a run on the misbehaving server, and the first line of what it says."""
    weights = folder / "models" / "tiny.gguf"
    kept = weights.read_bytes()
    build(server, **behaviour)
    ran = qlock("run", lock, "--repeat-lock", cwd=folder)
    weights.write_bytes(kept)
    said = [line for line in ran.stderr.split("\n") if line.startswith(("error: ", "ok: "))]
    return ran.returncode, said[0] if said else ran.stderr.strip()[-200:]


def at_engine(folder: Path, server: Path, behaviour: Behaviour, deadlines: Deadlines) -> tuple[int, str]:
    """Exit code of the error that the engine raises, and its message."""
    build(server, **behaviour)
    setting = msgspec.structs.replace(SETTING, context_tokens=512, slots=1)
    with open_engine(lib_folder=server, deadlines=deadlines) as engine:
        try:
            engine.load(Load(weights=(str(folder / "models" / "tiny.gguf"),), setting=setting))
            sampling = greedy(4, ignore_eos=True)
            engine.submit(
                Generate(id="x", tokens=(1,), sampling=sampling, logprobs=False, logits_digest=False)
            )
            engine.next_done()
        except EngineError as error:
            return int(error.exit_code), f"error: {error}"
    return 0, ""


def main() -> int:
    """Play all of them."""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="q") as place:
        folder, server = Path(place) / "project", build(Path(place) / "build")
        lock = project(folder, server)
        found = [
            (behaviour, expected, at_run(folder, lock, server, behaviour)) for behaviour, expected in AT_RUN
        ]
        found += [
            (behaviour, 7, at_engine(folder, server, behaviour, deadlines))
            for behaviour, deadlines in AT_ENGINE
        ]
        print("misbehaviour | exit code | message")
        for behaviour, expected, (code, said) in found:
            missed += code != expected
            shown = ", ".join(f"{name} = {value}" for name, value in behaviour.items()) or "none"
            mark = "" if code == expected else f" (expected {expected})"
            # Names that are drawn anew for each server would make two tables differ.
            steady = re.sub(r"qlock-[0-9a-f]{16}", "qlock-…", said.replace(place, "…"))
            print(f"{shown} | {code}{mark} | {steady}")
    print(f"{len(found) - missed} of {len(found)} as they must be")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
