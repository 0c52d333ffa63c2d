from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.lock import Lock, Missing, write_lock
from qlock.errors import AbsentError, EngineError, InputError, QlockError, RefusedError
from qlock.flows.kinds import engine_opener
from qlock.flows.moving import Move
from qlock.flows.refusal import FindingsError
from qlock.flows.resolve import Asked, in_name_order, read_lock_file, read_spec_file, resolve
from tests.broken.make_gguf import I32, STRING, U16, gguf, kv, tensor
from tests.fakes.project import Project, items_jsonl, tiny_gguf
from tests.fakes.world import CPU, FixedHost

ROOT = Path(__file__).resolve().parents[2]


def told(error: QlockError) -> tuple[str, str]:
    return str(error), error.hint


def refused(project: Project, kind: type[QlockError], **asked: object) -> tuple[str, str]:
    with pytest.raises(kind) as caught:
        project.resolve(**asked)
    return told(caught.value)


# The same spec, the same bytes


def test_two_resolves_in_a_row_give_the_same_bytes(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.resolve()
    assert first.state == "new"
    assert project.resolve().data == first.data
    project.lock()
    again = project.resolve()
    assert (again.state, again.data, again.moves) == ("same", first.data, ())


def test_two_clones_in_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    locks = {
        Project(tmp_path / place, name=name).resolve().data
        for place, name in [("a", "work"), ("b", "ü 中 🦙")]
    }
    assert len(locks) == 1


def test_a_relative_path_is_taken_from_the_working_folder_of_the_world(tmp_path: Path) -> None:
    project = Project(tmp_path)
    whole = project.resolve()
    project.change_world(cwd=project.path / "specs")
    near = resolve(project.world, Asked(spec_path=Path("small.toml")), project.script.open_engine)
    assert (near.data, near.path) == (whole.data, whole.path)


PROGRAM = """
import sys, os
from pathlib import Path
from tests.fakes.project import Project
place = Path(sys.argv[1])
os.chdir(place)
sys.stdout.buffer.write(Project(place).resolve().data)
"""


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONHASHSEED": "0", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"},
    ],
    ids=["C", "another locale, zone and hash seed"],
)
def test_other_processes_give_the_same_bytes(tmp_path: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], **variables},
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout == Project(tmp_path / "here").resolve().data


def test_order_comments_and_white_space_of_the_spec_do_not_matter(tmp_path: Path) -> None:
    project = Project(tmp_path)
    plain = project.resolve().data
    head, *tables = re.split(
        r"(?=\n\[\[(?:model|setting|suite)\]\])", (project.path / "specs/small.toml").read_text()
    )
    project.write(
        "specs/small.toml", "# a comment\n" + head + "".join(f"\n\n# and one\n{t}" for t in reversed(tables))
    )
    assert project.resolve().data == plain


def test_names_within_a_suite_are_taken_in_order_too(tmp_path: Path) -> None:
    project = Project(tmp_path)
    spec = read_spec_file(project.world, project.path / "specs/small.toml")
    suites = tuple(
        msgspec.structs.replace(suite, models=("B", "A"), settings=("plain",)) for suite in spec.suite
    )
    ordered = in_name_order(msgspec.structs.replace(spec, suite=suites))
    assert [suite.models for suite in ordered.suite] == [("A", "B"), ("A", "B")]
    assert in_name_order(spec).suite[0].models is UNSET


def test_no_absolute_path_no_host_and_no_day_stands_in_a_lock(tmp_path: Path) -> None:
    text = Project(tmp_path).resolve().data.decode()
    assert str(tmp_path) not in text
    assert "node-1" not in text
    assert re.findall(r"20\d\d-\d\d-\d\d", text) == ["2026-01-01"]


# What is kept


def test_nothing_changed_proves_one_point_to_see_the_engine(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    assert project.resolve().state == "same"
    assert project.script.probes == ["a.gguf"]


def test_a_new_model_is_proved_alone_and_the_old_points_stay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock().lock
    project.script.probes.clear()
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    after = project.resolve()
    assert (after.state, after.moves) == ("changed", ())
    assert project.script.probes == ["c.gguf"]
    assert after.lock.point[:2] == before.point
    assert [pin.name for pin in after.lock.point] == ["A@plain", "B@plain", "C@plain"]


def test_a_model_that_goes_takes_nothing_else_with_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock().lock
    del project.models["A"]
    project.write_spec()
    after = project.resolve()
    assert (after.lock.point, after.moves) == (before.point[1:], ())


def test_another_engine_file_proves_every_point_again_and_is_a_move(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    (project.script.folder / "libm.so.6").write_bytes(b"code of another libm")
    after = project.resolve()
    assert sorted(project.script.probes) == ["a.gguf", "b.gguf"]
    parts = ("blake3", "sha256", "size_bytes")
    assert after.moves == (
        Move(
            name="llama-cpp-python", what="engine", why=", ".join(f"file.libm.so.6.{part}" for part in parts)
        ),
    )
    assert project.resolve(upgrade=("engine",)).moves == ()
    assert project.resolve(upgrade=("llama-cpp-python",)).moves == ()


def test_a_file_that_cannot_change_output_moves_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    (project.script.folder / "libc.so.6").write_bytes(b"code of another libc")
    assert project.resolve().state == "same"


def test_another_device_of_the_same_name_is_a_move_and_proves_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="AMD EPYC 2")))
    assert project.resolve().moves == (Move(name="cpu-amd-1a-02", what="device", why="cpu_model"),)
    assert sorted(project.script.probes) == ["a.gguf", "b.gguf"]


def test_more_cores_prove_nothing_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock()
    project.script.probes.clear()
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cores=64)))
    after = project.resolve()
    assert (after.moves, len(project.script.probes)) == ((), 1)
    assert after.lock.point == before.lock.point


@pytest.mark.parametrize(
    "upgrade, moves",
    [
        ((), 1),
        (("B",), 1),
        (("A",), 0),
        (("model",), 0),
        (("all",), 0),
    ],
)
def test_a_changed_file_is_an_unasked_move_until_it_is_named(
    tmp_path: Path, upgrade: tuple[str, ...], moves: int
) -> None:
    project = Project(tmp_path)
    project.lock()
    project.write("models/a.gguf", tiny_gguf(9))
    after = project.resolve(upgrade=upgrade)
    why = "tensors differ; tokenizer, template, metadata identical"
    assert after.moves == (Move(name="A", what="model", why=why),) * moves
    assert after.before == project.lock_path.read_bytes()


def test_a_changed_suite_file_is_an_unasked_move(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.write("tasks/digits.jsonl", items_jsonl(8, start=1))
    assert project.resolve().moves == (Move(name="digits", what="suite", why="items: the file changed"),)
    assert project.resolve(upgrade=("digits",)).moves == ()


def test_a_changed_spec_is_asking(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    after = project.resolve()
    assert (after.state, after.moves) == ("changed", ())


def test_the_same_ground_that_behaves_otherwise_is_a_move_of_the_point(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.nats = 3.0
    assert project.resolve().moves == (Move(name="A@plain", what="point", why="plain_text_nats"),)
    assert project.resolve(upgrade=("A@plain",)).moves == ()


def test_a_raised_limit_asks_for_more_items(tmp_path: Path) -> None:
    project = Project(tmp_path)

    def limited(limit: str) -> tuple[object, bool, set[int]]:
        project.write_spec(lambda text: text.replace('kind = "tasks"', f'kind = "tasks"{limit}'))
        lock = project.lock().lock
        suite = next(pin for pin in lock.suite if pin.name == "digits")
        return suite.items_limit, suite.items_all, {pin.prompts[0].items for pin in lock.point if pin.prompts}

    assert limited("\nlimit = 3") == (3, False, {3})
    assert limited("\nlimit = 5") == (5, False, {5})
    assert limited("") == (8, True, {8})
    assert limited("\nlimit = 100") == (8, True, {8})
    assert limited("\nlimit = 8") == (8, False, {8})
    assert limited("\nlimit = 2") == (2, False, {2})


def test_a_limit_that_changes_nothing_proves_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    project.write_spec(
        lambda text: text.replace('kind = "tasks"', 'kind = "tasks"\nlimit = 100\nrepeats = 3')
    )
    project.lock()
    assert len(project.script.probes) == 1


# Falling back


def test_rows_that_depend_on_one_another_make_the_whole_setting_fall_back_to_one_slot(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.shaky = {"b.gguf"}
    lock = project.resolve().lock
    (setting,) = lock.setting
    why = (
        "B@plain: greedy tokens stay but logits do not when the schedule changes (repeat, permute, dummies, copies, "
        "long-neighbours): logits move by up to 0.25, 0.001 nats of KL divergence a token"
    )
    assert (setting.slots, setting.slots_requested, setting.slots_why) == (1, 4, why)
    assert project.script.probes == ["a.gguf", "b.gguf", "a.gguf", "b.gguf"]
    assert [(pin.repeatable, pin.read_back) for pin in lock.point] == [
        ("bitwise", pin.read_back) for pin in lock.point
    ]
    assert {pin.read_back.slots for pin in lock.point if pin.read_back is not UNSET} == {1}
    assert {pin.repeatable_why for pin in lock.point} == {
        "each answer is the same bits every time, so a run may stop and resume anywhere"
    }


def test_a_model_added_to_a_fallen_back_setting_stays_at_one_slot(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.shaky = {"b.gguf"}
    before = project.lock().lock
    project.script.probes.clear()
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    after = project.resolve()
    assert after.moves == ()
    assert (after.lock.setting, after.lock.point[:2]) == (before.setting, before.point)
    assert project.script.probes == ["c.gguf"]


def test_a_new_model_that_narrows_a_setting_moves_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.shaky = {"c.gguf"}
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    (move,) = project.resolve().moves
    assert (move.name, move.what) == ("plain", "setting")
    assert move.why.startswith("falls back to 1 slot: C@plain: greedy tokens stay but logits do not")
    assert project.resolve(upgrade=("plain",)).moves == ()


# Without the engine


def test_without_the_engine_what_only_it_knows_is_listed_missing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    resolved = project.resolve(prove=False)
    assert project.script.opened == 0
    fields = ("canary", "plain_text_nats", "probe", "prompts", "read_back", "repeatable")
    pins = [f"point.{point}.{field}" for point in ("A@plain", "B@plain") for field in fields]
    pins += ["suite.digits.items_limit", "suite.text.items_limit"]
    assert resolved.lock.missing == tuple(
        Missing(pin=pin, why="the engine was not asked", until="prove") for pin in pins
    )
    resolved.path.parent.mkdir()
    resolved.path.write_bytes(resolved.data)
    with pytest.raises(RefusedError) as caught:
        project.run()
    assert told(caught.value) == (
        "the lock still misses 14 pins, first `point.A@plain.canary`: the engine was not asked",
        "run `qlock resolve specs/small.toml`, on the machine that shall run it",
    )
    proved = project.lock()
    assert {entry.until for entry in proved.lock.missing} == {"never"}
    assert proved.data == Project(tmp_path / "fresh").resolve().data


def test_without_the_engine_what_was_proved_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock()
    assert project.resolve(prove=False).data == before.data
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    after = project.resolve(prove=False)
    assert (after.moves, after.lock.point[:2]) == ((), before.lock.point)
    assert {entry.pin.split(".")[1] for entry in after.lock.missing if entry.until == "prove"} == {"C@plain"}


# Models


def test_an_unknown_tensor_type_is_pinned_without_proof_and_run_refuses_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("models/b.gguf", tiny_gguf(2, type_id=156))
    lock = project.lock().lock
    why = "type 156 (unknown): needs ik_llama.cpp?"
    size = "type 156 (unknown): the size of its tensors is not known"
    fields = ("canary", "plain_text_nats", "probe", "prompts", "read_back", "repeatable")
    assert [entry for entry in lock.missing if not entry.pin.startswith("engine.")] == [
        Missing(pin="model.B.bits_per_weight", why=size, until="never"),
        Missing(
            pin="model.B.recipe.type 156 (unknown).bytes",
            why="the size of this type is not known",
            until="never",
        ),
        Missing(pin="model.B.tensors_digest", why=size, until="never"),
        *(Missing(pin=f"point.B@plain.{field}", why=why, until="never") for field in fields),
    ]
    assert project.script.loads == ["a.gguf"]
    opened = project.script.opened
    for allow in ((), ("model.B",)):
        ran = project.run(allow=allow)
        assert (ran.state, project.script.opened) == ("refused", opened)
        (finding,) = ran.findings
        assert (finding.rule, finding.where, finding.found, finding.why) == (
            "model-files",
            "model.B.recipe.type 156 (unknown)",
            "type 156 (unknown)",
            "needs ik_llama.cpp?",
        )


def test_where_no_model_can_run_the_engine_is_left_alone(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name in ("a", "b"):
        project.write(f"models/{name}.gguf", tiny_gguf(2, type_id=9999))
    lock = project.resolve().lock
    assert (project.script.opened, lock.engine[0].file) == (0, ())
    assert {entry.pin: entry.why for entry in lock.missing}["point.A@plain.canary"] == (
        "type 9999 (unknown): needs ik_llama.cpp?"
    )
    assert {entry.pin: entry.until for entry in lock.missing}["suite.digits.items_limit"] == "prove"


def test_a_trained_context_that_the_file_does_not_say_is_missing_and_no_zero(tmp_path: Path) -> None:
    project = Project(tmp_path)
    bare = gguf([kv("general.architecture", STRING, "llama")], [tensor("t", (32,))], bytes(128))
    project.write("models/b.gguf", bare)
    lock = project.lock().lock
    assert lock.model[1].trained_context_tokens is UNSET
    assert (
        Missing(
            pin="model.B.trained_context_tokens", why="the file has no `llama.context_length`", until="never"
        )
        in lock.missing
    )
    assert project.run().state == "sealed"


def shard(number: int, count: int = 3) -> bytes:
    keys = [] if number > 1 else [kv("general.architecture", STRING, "llama")]
    split = [
        kv("split.no", U16, number - 1),
        kv("split.count", U16, count),
        kv("split.tensors.count", I32, count),
    ]
    return gguf([*keys, *split], [tensor(f"t{number}", (32,))], bytes([number]) * 128)


def with_shards(project: Project, folder: str) -> list[str]:
    names = [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for number, name in enumerate(names, start=1):
        project.write(f"{folder}/{name}", shard(number))
    project.models["S"] = f"file:{folder}/{names[0]}"
    project.write_spec()
    return names


def test_a_split_model_is_pinned_shard_by_shard(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = with_shards(project, "models")
    lock = project.lock().lock
    model = next(pin for pin in lock.model if pin.name == "S")
    assert ([file.name for file in model.file], model.parameters) == (names, 96)
    assert project.run().state == "sealed"


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = with_shards(project, "models")
    (project.path / "models" / names[1]).unlink()
    message, _ = refused(project, AbsentError)
    assert message == f"model.S: model `{project.path}/models/{names[1]}` is not there"


def test_shards_behind_the_links_of_a_hub_cache_keep_their_names(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = with_shards(project, "hub/snapshots/0123abc")
    blobs = project.path / "hub/blobs"
    blobs.mkdir()
    for number, name in enumerate(names):
        link = project.path / "hub/snapshots/0123abc" / name
        link.rename(blobs / (f"{number}" * 64))
        link.symlink_to("../../blobs/" + f"{number}" * 64)
    lock = project.lock().lock
    assert [file.name for file in next(pin for pin in lock.model if pin.name == "S").file] == names
    assert names[0] in project.script.loads
    assert project.run().state == "sealed"


def test_links_that_lead_nowhere_or_round_and_what_is_no_file_are_refused_at_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    path = project.path / "models/a.gguf"
    at = f"`{path}`"

    def fault(kind: type[QlockError]) -> str:
        return refused(project, kind)[0]

    path.unlink()
    assert fault(AbsentError) == "no file at `models/a.gguf`, looked from the folder of the project"
    path.symlink_to("nowhere.gguf")
    assert fault(AbsentError) == f"model.A: model {at} is not there"
    path.unlink()
    path.symlink_to("a.gguf")
    assert fault(InputError) == f"model.A: model {at} is a symbolic link that leads back to itself"
    path.unlink()
    path.mkdir()
    assert fault(InputError) == f"model.A: model {at} is a folder, expected a regular file"
    path.rmdir()
    os.mkfifo(path)
    assert fault(InputError) == f"model.A: model {at} is a FIFO, expected a regular file"


@pytest.mark.parametrize("name", ["sp ace/m.gguf", "ünï/ÄÖ.gguf", "模型/量化.gguf", "🦙/🙂.gguf"])
def test_any_letters_in_paths_work_and_stand_in_the_lock_as_they_are(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path, name=f"project {name.partition('/')[0]}")
    project.write(name, tiny_gguf(4))
    project.models["A"] = f"file:{name}"
    project.write_spec()
    data = project.lock().data
    assert f'requested = "file:{name}"\n'.encode() in data
    assert f'name = "{name.partition("/")[2]}"\n'.encode() in data
    assert project.run().state == "sealed"


def test_an_imatrix_is_no_model(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(
        "models/a.gguf", gguf([kv("general.type", STRING, "imatrix")], [tensor("t", (32,))], bytes(128))
    )
    assert refused(project, InputError) == (
        "model.A: the file is an imatrix, not a model",
        "name the model's own GGUF",
    )


def test_an_engine_that_makes_no_sense_of_plain_text_is_refused_unless_the_model_is_untrained(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    project.script.nats = 5.5
    with pytest.raises(FindingsError) as caught:
        project.resolve()
    assert str(caught.value) == (
        "point.A@plain.plain_text_nats: got `5.50`, expected `below 3.70`: engine output not sane: plain English "
        "costs as much as guessing; for random weights set `trained = false`"
    )
    project.write_spec(lambda text: text.replace('.gguf"\n', '.gguf"\ntrained = false\n'))
    assert project.resolve().state == "new"


def test_an_engine_that_does_not_start_or_obey_stops_the_resolve(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.read_back = {"slots": 2}
    assert refused(project, RefusedError) == (
        "point.A@plain.slots: got `2`, expected `4`",
        "the engine did not do as it was told; look at its log",
    )
    project.script.start_error = "the engine did not start: no libllama.so"
    assert refused(project, EngineError) == ("the engine did not start: no libllama.so", "")


# The words of the spec


@pytest.mark.parametrize(
    "old, new, message, hint",
    [
        (
            'kind = "tasks"',
            'kind = "task"',
            "suite.digits.kind: got `task`, expected a known suite kind: perplexity, tasks",
            "did you mean `tasks`?",
        ),
        (
            'kind = "tasks"',
            'kind = "bfcl"',
            "suite.digits.kind: got `bfcl`, expected a known suite kind: perplexity, tasks",
            "",
        ),
        (
            "window_tokens = 64",
            "window_token = 64",
            "suite.text: unknown key `window_token`",
            "did you mean `window_tokens`?",
        ),
        (
            "windows = 3",
            "windws = 3",
            "suite.text: unknown key `windws`",
            "did you mean `windows`?",
        ),
        (
            "windows = 3",
            'windows = "3"',
            "suite.text.windows: got text `3`, expected an integer",
            "",
        ),
        (
            'text = "file:data/text.txt"\n',
            "",
            "suite.text: the key `text` is missing",
            "",
        ),
        (
            "file:tasks/digits.jsonl",
            "tasks/digits.jsonl",
            (
                "suite.digits: got `tasks/digits.jsonl`, expected file:PATH, wheel:NAME==VERSION/MEMBER, "
                "hub:OWNER/REPO/FILE or url:https://…"
            ),
            "",
        ),
        (
            "file:tasks/digits.jsonl",
            "hub:owner/repo/digits.jsonl",
            "suite.digits: got `hub:owner/repo/digits.jsonl`, this version of qlock reads file: and wheel: sources only",
            "download the file and name it with file:PATH",
        ),
    ],
)
def test_a_word_that_nobody_knows_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str, hint: str
) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text.replace(old, new))
    assert refused(project, InputError) == (message, hint)


def test_an_unknown_engine_kind_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        engine_opener("llama-cpp-pythn")
    assert caught.value.hint == "did you mean `llama-cpp-python`?"


def test_a_gpu_that_this_version_cannot_use_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text + '\n[device]\nkind = "gpu"\n')
    assert refused(project, AbsentError) == (
        "device.kind: the spec asks for a GPU, and the embedded engine of this version measures on the CPU",
        'set `[device] kind = "cpu"`',
    )


def test_two_items_of_one_id_are_refused_with_both_places(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("tasks/digits.jsonl", items_jsonl(3) + items_jsonl(2))
    message, _ = refused(project, InputError)
    assert message == ("point.A@plain.suite.digits: the id `q00` occurs twice: on line 1 and on line 4")


# The lock that was there


def edited(project: Project) -> None:
    path = project.lock_path
    path.write_bytes(path.read_bytes().replace(b"slots = 4\n", b"slots = 2\n", 1))


def test_an_edited_lock_is_refused_and_made_anew_only_when_asked(tmp_path: Path) -> None:
    project = Project(tmp_path)
    fresh = project.lock()
    edited(project)
    assert refused(project, InputError) == (
        "small@cpu-amd-1a-02.toml: the lock was edited by hand: its body_digest does not fit",
        "restore it from git, or make it anew with `qlock resolve --upgrade all specs/small.toml`",
    )
    anew = project.resolve(upgrade=("all",))
    assert (anew.before, anew.moves, anew.data) == (None, (), fresh.data)


def test_conflict_markers_in_the_lock_are_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.lock_path.write_bytes(b"<<<<<<< HEAD\n" + project.lock_path.read_bytes())
    message, _ = refused(project, InputError)
    assert message == "small@cpu-amd-1a-02.toml: unresolved git conflict at line 1"


def test_a_folder_is_no_lock(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(InputError) as caught:
        read_lock_file(project.world, project.path)
    assert str(caught.value) == "got the folder `work`, expected a lock file"


def test_a_resolved_lock_reads_back_as_itself(tmp_path: Path) -> None:
    project = Project(tmp_path)
    resolved = project.lock()
    lock, data = read_lock_file(project.world, project.lock_path)
    assert data == resolved.data
    assert msgspec.structs.replace(lock, body_digest="") == resolved.lock
    assert write_lock(lock, spec_path="specs/small.toml") == data
    assert isinstance(lock, Lock)
