"""Models from the Hub and from addresses, pinned without their weights."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.digest import sha256_of
from qlock.core.lock import Lock, MissingPin
from qlock.errors import AbsentError, InputError
from qlock.flows.fetch import Asked as Fetch
from qlock.flows.fetch import fetch
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, items_jsonl, refusal, tiny_gguf
from tests.fakes.world import ScriptedRemote

PADDING = bytes(4_000)
"""Makes a file large enough for LFS."""


def weights(seed: int = 1, template: str = "{{ messages }}") -> bytes:
    return tiny_gguf(seed, template=template) + PADDING


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def commit(stub: FakeHub) -> str:
    return stub.repository("o/m").commit(
        {
            "Q4/m-Q4_K_M.gguf": weights(1),
            "m-UD-Q4_K_XL.gguf": weights(2),
            "mmproj-F16.gguf": weights(3),
            "imatrix.gguf": weights(4),
        }
    )


@pytest.fixture
def project(tmp_path: Path, stub: FakeHub) -> Project:
    made = Project(tmp_path)
    made.connect(stub)
    made.models = {"A": "hub:o/m:Q4_K_M", "B": "file:models/b.gguf"}
    made.write_spec()
    return made


def until(lock: Lock, when: str) -> dict[str, str]:
    return {entry.pin: entry.why for entry in lock.missing if entry.until == when}


def bring(project: Project, stub: FakeHub, path: str, commit: str) -> Path:
    """Put a file into the cache, as another program would."""
    listing = project.world.hub.listing("o/m", commit, paths=[path])
    return project.world.hub.fetch(listing.snapshot, listing.files[0])


# Without the weights


def test_a_model_on_the_hub_is_pinned_without_its_weights(
    project: Project, stub: FakeHub, commit: str, tmp_path: Path
) -> None:
    lock = project.lock().lock
    pin = lock.model[0]
    assert (pin.requested, pin.revision) == ("hub:o/m:Q4_K_M@main", commit)
    assert (pin.architecture, pin.parameters, pin.bits_per_weight) == ("llama", 32, 32.0)
    (file,) = pin.file
    assert (file.name, file.size_bytes) == ("Q4/m-Q4_K_M.gguf", len(weights()))
    assert file.sha256 == f"sha256:{hashlib.sha256(weights()).hexdigest()}"
    assert (file.blake3, pin.tensors_digest) == (UNSET, UNSET)
    assert until(lock, "fetch") == {
        "model.A.file.Q4/m-Q4_K_M.gguf.blake3": "the weights are not here",
        "model.A.tensors_digest": "the weights are not here",
    }
    fields = ("canary", "plain_text_nats", "probe", "read_back", "repeatable")
    assert until(lock, "prove") == {f"point.A@plain.{field}": "the weights are not here" for field in fields}
    assert lock.point[1].repeatable == "bitwise"
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    "source, message",
    [
        ("hub:o/m:Q8_0", "model.A: `Q8_0` names no model of `o/m`"),
        ("hub:o/m/none.gguf", "model.A: `none.gguf` names no model of `o/m`"),
        ("hub:o/m:Q4_K_M@v1", "model.A: repository `o/m` has no revision `v1`"),
        ("hub:o/none:Q4_0", "model.A: there is no repository `o/none` on the Hub, or it is private"),
    ],
)
def test_what_the_hub_does_not_have_is_named(
    project: Project, commit: str, source: str, message: str
) -> None:
    project.models["A"] = source
    project.write_spec()
    with pytest.raises((InputError, AbsentError)) as caught:
        project.resolve()
    assert str(caught.value) == message


def test_an_imatrix_that_is_named_by_its_path_is_no_model(project: Project, stub: FakeHub) -> None:
    from tests.broken.make_gguf import STRING, gguf, kv

    data = gguf([kv("general.architecture", STRING, "llama"), kv("general.type", STRING, "imatrix")], [])
    stub.repository("o/m").commit({"imatrix.gguf": data + PADDING})
    project.models["A"] = "hub:o/m/imatrix.gguf"
    project.write_spec()
    assert refusal(project, InputError) == (
        "model.A: the file is an imatrix, not a model",
        "name the model's own GGUF",
    )


def test_a_file_that_is_not_in_lfs_is_fetched_since_nobody_publishes_its_digest(
    project: Project, stub: FakeHub
) -> None:
    small = tiny_gguf(1)
    stub.repository("o/m").commit({"m-Q4_K_M.gguf": small})
    lock = project.lock().lock
    assert lock.model[0].file[0].sha256 == f"sha256:{hashlib.sha256(small).hexdigest()}"
    assert lock.point[0].repeatable == "bitwise"
    assert until(lock, "fetch") == {}


@pytest.mark.parametrize("flock", ["missing", "for everybody"])
def test_two_resolves_at_once_both_end_with_the_right_file(
    project: Project, stub: FakeHub, monkeypatch: pytest.MonkeyPatch, flock: str
) -> None:
    def broken(*_: object) -> None:
        if flock == "missing":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", broken)
    small = tiny_gguf(1)
    stub.repository("o/m").commit({"m-Q4_K_M.gguf": small})
    stub.trouble.delay_s = 0.05
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(project.resolve) for _ in range(2)]
        first, second = (one.result() for one in found)
    assert first.data == second.data
    (name,) = {Path(path) for path in (project.path.parent / "hf").rglob("m-Q4_K_M.gguf")}
    assert name.read_bytes() == small
    assert list((project.path.parent / "hf").rglob("*.incomplete")) == []


def test_split_models_are_pinned_shard_by_shard(project: Project, stub: FakeHub) -> None:
    from tests.broken.make_gguf import STRING, U16, gguf, kv, tensor

    def shard(number: int) -> bytes:
        fields = [
            kv("split.no", U16, number),
            kv("split.count", U16, 2),
            *([kv("general.architecture", STRING, "llama")] if number == 0 else []),
        ]
        return gguf(fields, [tensor(f"blk.{number}.attn_q.weight", (32,))], bytes(128)) + PADDING

    names = [f"q/m-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    stub.repository("o/m").commit({names[0]: shard(0), names[1]: shard(1)})
    pin = project.resolve(prove=False).lock.model[0]
    assert [file.name for file in pin.file] == names
    assert pin.parameters == 64
    stub.repository("o/m").remove(names[1])
    assert refusal(project, InputError, upgrade=("A",)) == (
        f"model.A: `o/m` lacks 1 of 2 shards: `{names[1]}`",
        "",
    )


# With the weights


def test_weights_that_are_in_the_cache_are_proved(project: Project, stub: FakeHub, commit: str) -> None:
    path = bring(project, stub, "Q4/m-Q4_K_M.gguf", commit)
    lock = project.lock().lock
    assert until(lock, "fetch") == until(lock, "prove") == {}
    assert lock.model[0].file[0].blake3 is not UNSET
    # The engine is given the snapshot's link: its blob has no name that leads to other shards.
    assert path.is_symlink()
    assert sorted(set(project.script.loads)) == ["b.gguf", path.name]


def test_a_later_resolve_fills_in_what_was_missing_and_moves_nothing(
    project: Project, stub: FakeHub, commit: str
) -> None:
    before = project.lock()
    bring(project, stub, "Q4/m-Q4_K_M.gguf", commit)
    after = project.lock()
    assert after.moves == ()
    assert until(after.lock, "fetch") == until(after.lock, "prove") == {}
    assert after.lock.point[1] == before.lock.point[1]
    fresh = Project(project.path.parent / "fresh")
    fresh.change_world(hub=project.world.hub)
    fresh.models = project.models
    fresh.write_spec()
    assert fresh.resolve().data == after.data


def test_what_was_proved_stays_where_the_weights_are_gone(
    project: Project, stub: FakeHub, commit: str
) -> None:
    path = bring(project, stub, "Q4/m-Q4_K_M.gguf", commit)
    before = project.lock()
    path.unlink()
    assert project.resolve().data == before.data
    project.models["C"] = "file:models/a.gguf"
    project.write_spec()
    after = project.resolve()
    assert (after.moves, after.lock.point[:2]) == ((), before.lock.point)


def test_another_engine_makes_every_proof_void_also_where_the_weights_are_gone(
    project: Project, stub: FakeHub, commit: str
) -> None:
    path = bring(project, stub, "Q4/m-Q4_K_M.gguf", commit)
    project.lock()
    path.unlink()
    project.script.system_info = "CPU : OTHER = 1"
    lock = project.resolve(upgrade=("engine",)).lock
    assert [point.repeatable for point in lock.point] == [UNSET, "bitwise"]


def test_right_size_and_wrong_bytes_in_the_cache_are_not_used(
    project: Project, stub: FakeHub, commit: str
) -> None:
    path = bring(project, stub, "Q4/m-Q4_K_M.gguf", commit)
    real = path.resolve()
    real.chmod(0o644)
    real.write_bytes(bytes(len(weights())))
    with pytest.raises(InputError):
        project.resolve()
    real.write_bytes(weights()[:-1] + b"\1")
    message, hint = refusal(project, InputError)
    assert message == (
        "model.A: `Q4/m-Q4_K_M.gguf` in the cache has other bytes than pinned, and is not used: got "
        f"`sha256:{hashlib.sha256(weights()[:-1] + bytes([1])).hexdigest()}`, expected "
        f"`sha256:{hashlib.sha256(weights()).hexdigest()}`"
    )
    assert hint == f"remove `{path}` and fetch it again"


# The lock that was there


def test_a_second_resolve_asks_once_for_each_repository(project: Project, stub: FakeHub, commit: str) -> None:
    project.models = {"A": "hub:o/m:Q4_K_M", "B": "hub:o/m:UD-Q4_K_XL"}
    project.write_spec()
    before = project.lock()
    stub.seen.clear()
    again = project.resolve()
    assert (again.state, again.notes, again.data) == ("same", (), before.data)
    assert stub.paths() == ["GET /api/models/o/m/revision/main"]


def test_a_pinned_model_is_kept_under_another_name(project: Project, stub: FakeHub, commit: str) -> None:
    before = project.lock()
    project.models = {"Z": "hub:o/m:Q4_K_M", "B": "file:models/b.gguf"}
    project.write_spec()
    stub.seen.clear()
    after = project.resolve()
    assert len(stub.seen) == 1
    assert after.lock.model[1] == msgspec.structs.replace(before.lock.model[0], name="Z")
    assert MissingPin(pin="model.Z.tensors_digest", why="the weights are not here", until="fetch") in (
        after.lock.missing
    )


def test_another_revision_in_the_spec_is_asking(project: Project, stub: FakeHub, commit: str) -> None:
    project.lock()
    later = stub.repository("o/m").commit({"Q4/m-Q4_K_M.gguf": weights(9)})
    project.models["A"] = f"hub:o/m:Q4_K_M@{later}"
    project.write_spec()
    after = project.resolve()
    assert (after.moves, after.lock.model[0].revision) == ((), later)


def test_a_branch_that_moved_keeps_the_pin_until_it_is_asked_to_move(
    project: Project, stub: FakeHub, commit: str
) -> None:
    before = project.lock()
    later = stub.repository("o/m").commit({"Q4/m-Q4_K_M.gguf": weights(1, "{{ fixed }}")}, "Fix template")
    kept = project.resolve()
    assert (kept.state, kept.data) == ("same", before.data)
    assert len(kept.notes) == 2
    moved = project.resolve(upgrade=("A",))
    assert (moved.moves, moved.lock.model[0].revision) == ((), later)
    assert moved.lock.model[0].template_digest != before.lock.model[0].template_digest
    assert moved.notes == ()


def test_no_network_is_needed_for_what_is_pinned(project: Project, stub: FakeHub, commit: str) -> None:
    before = project.lock()
    project.connect(stub, HF_HUB_OFFLINE="1")
    stub.seen.clear()
    again = project.resolve()
    assert (again.data, again.notes, stub.seen) == (before.data, (), [])


# Addresses


def test_two_revisions_of_one_model_are_one_too_many(project: Project, commit: str) -> None:
    project.write_spec(lambda text: text.replace('"hub:o/m:Q4_K_M"', '"hub:o/m:Q4_K_M@v1"\nrevision = "v2"'))
    assert refusal(project, InputError) == (
        "model.A.revision: got the revisions `v1` and `v2`, expected one",
        "",
    )


ADDRESS = "https://x.org/files/m.gguf"


@pytest.fixture
def remote(project: Project, tmp_path: Path) -> ScriptedRemote:
    """A model and an exam behind addresses, and a spec that asks for them."""
    exam, items = "https://x.org/digits.jsonl", items_jsonl(8)
    made = ScriptedRemote(tmp_path / "url", {ADDRESS: weights(), exam: items})
    project.change_world(remote=made)
    project.models = {"A": f"url:{ADDRESS}#{sha256_of(weights()).replace(':', '=')}"}
    data = f"url:{exam}#{sha256_of(items).replace(':', '=')}"
    project.write_spec(lambda text: text.replace("file:tasks/digits.jsonl", data))
    return made


def test_a_file_behind_an_address_is_pinned_fetched_proved_and_run(
    project: Project, remote: ScriptedRemote
) -> None:
    pin = project.lock().lock.model[0]
    assert (pin.requested, pin.revision) == (project.models["A"], "")
    assert (pin.file[0].name, pin.file[0].size_bytes) == ("m.gguf", len(weights()))
    assert remote.asked.count(ADDRESS) == 2
    assert project.resolve().state == "same"
    assert remote.asked.count(ADDRESS) == 2
    fetched = fetch(project.world, Fetch(lock_path=project.lock_path), lambda _: None)
    assert [(file.owner, file.is_new) for file in fetched.file] == [
        ("model A", True),
        ("suite digits", False),
    ]
    project.lock()
    project.change_world(remote=remote.offline())
    asked = list(remote.asked)
    assert (project.run().state, remote.asked) == ("sealed", asked)


def test_another_file_behind_the_address_is_refused_when_it_is_fetched(
    project: Project, remote: ScriptedRemote
) -> None:
    project.lock()
    remote.by_url[ADDRESS] = weights(8)
    with pytest.raises(InputError) as caught:
        fetch(project.world, Fetch(lock_path=project.lock_path), lambda _: None)
    assert str(caught.value) == f"model.A: `{ADDRESS}` has other bytes than the spec says, and is not used"


def test_a_shard_behind_an_address_is_refused(project: Project) -> None:
    project.models["A"] = f"url:https://x.org/m-00001-of-00002.gguf#sha256={'0' * 64}"
    project.write_spec()
    assert refusal(project, InputError) == (
        "model.A: `m-00001-of-00002.gguf` is one shard of several, and an address names one file",
        "take the model from the Hub, or merge it into one file",
    )
