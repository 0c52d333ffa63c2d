"""What a suite that is held against a reference needs of its points, seen when the spec is resolved."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.comparison import Distances
from qlock.core.differing import brief
from qlock.core.distance import Distance
from qlock.core.facts import ReadBack
from qlock.core.lock import named, read_lock
from qlock.core.plan import jobs
from qlock.core.traces import write_traces
from qlock.engines.interface import Contrasted, Done, KeptFile, Load
from qlock.errors import AbsentError, EngineError, InputError
from qlock.flows import check, diff
from qlock.flows.references import vocab_tokens
from qlock.flows.refusal import FindingsError
from qlock.flows.weighing import Weighed
from qlock.world.interface import Memory
from tests.broken.make_gguf import STRING, U32, array, gguf, kv, tensor
from tests.core.test_traces import a_header, a_trace
from tests.fakes.documents import a_digest, a_kld_lock
from tests.fakes.engine import VOCAB_TOKENS, FakeEngine
from tests.fakes.kld import KLD, add_kld
from tests.fakes.project import Project, folder_of, refusal, sealed, tiny_gguf, undisturbed, wheres
from tests.fakes.world import FixedHost

WORDS = ["a", "b", "c"]


class HostOf(FixedHost):
    """A host with so much memory."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__()
        self.total_bytes = total_bytes

    def memory(self) -> Memory:
        return Memory(total_bytes=self.total_bytes, available_bytes=self.total_bytes, limited_by="machine")


def other_vocabulary() -> bytes:
    """A model of three tokens, where the others have two."""
    fields = [
        kv("general.architecture", STRING, "llama"),
        kv("llama.context_length", U32, 2048),
        kv("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, WORDS),
        kv("tokenizer.chat_template", STRING, "x"),
    ]
    return gguf(fields, [tensor("token_embd.weight", (32,), 0)], bytes(128))


def test_the_reference_is_in_the_lock_of_a_suite_that_needs_one(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    lock = read_lock(project.lock().data, name="x")
    assert {suite.name: suite.reference for suite in lock.suite} == {
        "digits": "",
        "distance": "A@plain",
        "text": "",
    }
    assert lock.suite[1].params == {
        "text": "file:data/text.txt",
        "window_tokens": 64,
        "windows": 3,
        "stored": False,
    }


def test_a_suite_that_needs_a_reference_is_refused_without_one(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    project.write_spec(lambda text: text + KLD)
    assert refusal(project, InputError) == (
        "suite.distance: a suite of the kind `kld` is held against a reference, and the spec names none",
        'add `[compare]` with `reference = "MODEL@SETTING"`',
    )


def test_a_point_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    project.write("models/b.gguf", other_vocabulary())
    message, hint = refusal(project, InputError, prove=False)
    assert message.startswith(
        "suite.distance: `B@plain` has another tokenizer than the reference `A@plain`: got `blake3:"
    )
    assert hint == "leave it out of the suite with `models`; its numbers would be about other tokens"
    project.write_spec(lambda text: text)
    project.resolve(prove=False)


def test_traces_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path), traces=write_traces(a_header(1), [a_trace()]))
    message, _ = refusal(project, InputError, prove=False)
    assert message.startswith("suite.distance: `A@plain` has another tokenizer than the data: got `blake3:")
    assert message.endswith(f"expected `{brief(a_digest('tokenizer'))}`")


def test_answers_of_another_model_than_the_reference_are_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first, other = read_lock(project.lock(prove=False).data, name="x").model
    assert other.tensors_digest is not UNSET
    assert first.tensors_digest is not UNSET
    header = a_header(1, tokenizer_digest=other.tokenizer_digest, tensors_digest=other.tensors_digest)
    add_kld(project, traces=write_traces(header, [a_trace()]))
    message, hint = refusal(project, InputError, prove=False)
    assert message == (
        "suite.distance: the data holds answers of another model than the reference `A@plain`: got the tensors "
        f"`{brief(other.tensors_digest)}`, expected `{brief(first.tensors_digest)}`"
    )
    assert hint == "take the traces from a run of the reference"


def test_tokens_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    model = read_lock(project.lock(prove=False).data, name="x").model[0]
    header = a_header(2, tokenizer_digest=model.tokenizer_digest, tensors_digest=model.tensors_digest)
    add_kld(project, traces=write_traces(header, [a_trace(), a_trace("order-2", answer=(4, VOCAB_TOKENS))]))
    message, hint = refusal(project, InputError)
    assert message == (
        f"point.A@plain.suite.distance.order-2: got the token `{VOCAB_TOKENS}`, expected ids below the "
        f"vocabulary's `{VOCAB_TOKENS}`"
    )
    assert hint == "take the traces again from a run of this model"
    add_kld(
        project, traces=write_traces(header, [a_trace(), a_trace("order-2", answer=(4, VOCAB_TOKENS - 1))])
    )
    project.lock()


# ---------------------------------------------------------------- beside the point


class Turned(FakeEngine):
    """Decodes a reference otherwise than it decodes the same point alone."""

    def next_done(self) -> Done:
        match super().next_done():
            case Contrasted() as done:
                turned = tuple(cost + 0.5 for cost in done.reference_nats)
                return msgspec.structs.replace(done, reference_nats=turned)
            case done:
                return done


class Other(FakeEngine):
    """Says something else of a reference."""

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        read_back = super().refer(reference)
        assert read_back is not None
        return msgspec.structs.replace(read_back, threads=9)


class Silent(FakeEngine):
    """Says nothing of a reference."""

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        super().refer(reference)
        return None


def test_a_vocabulary_is_counted_by_its_header_or_as_it_was_read_back() -> None:
    lock = a_kld_lock()
    pin = lock.point[0]
    model = Weighed(pin=named(lock.model, pin.model), template=UNSET, paths=(), missing=())
    assert vocab_tokens([model], [pin]) == {pin.name: 49_152}
    assert vocab_tokens([msgspec.structs.replace(model, vocab_tokens=9)], [pin]) == {pin.name: 9}
    assert vocab_tokens([model], [msgspec.structs.replace(pin, read_back=UNSET)]) == {}


def opens(project: Project, kind: type[FakeEngine]) -> None:
    """Have the script's engines be of another kind."""
    project.script.kind = kind


def test_each_point_is_proved_with_its_reference_beside_it(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    project.models["C"] = "file:models/a.gguf"
    add_kld(project, more='models = ["B", "C"]\n')
    project.lock()
    assert project.script.loads == ["a.gguf", "b.gguf", "a.gguf"]
    assert project.script.references == ["a.gguf", "a.gguf"]


def test_a_point_that_is_added_is_held_against_the_reference_that_is_kept(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    project.lock()
    project.write("models/c.gguf", tiny_gguf(3))
    project.models["C"] = "file:models/c.gguf"
    add_kld(project)
    project.script.loads.clear()
    project.script.references.clear()
    project.resolve()
    assert (project.script.loads, project.script.references) == (["c.gguf"], ["a.gguf"])


def test_an_engine_that_cannot_hold_a_reference_beside_is_no_proof(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    opens(project, Turned)
    with pytest.raises(FindingsError) as caught:
        project.resolve()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.where) == ("canaries", "point.A@plain.plain_text_nats")
    opens(project, Silent)
    assert refusal(project, EngineError) == (
        "point.B@plain: the engine says nothing of the reference that it loaded",
        "",
    )


def test_there_must_be_room_for_both(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path))
    size = (project.path / "models/a.gguf").stat().st_size
    project.change_world(host=HostOf(size + size // 2))
    message, hint = refusal(project, AbsentError)
    assert message.startswith("point.B@plain: the point and its reference beside it need at least")
    assert hint == (
        "set `stored = true` in the suite, with `traces` also `stored_tokens`: "
        "then they are loaded one after the other"
    )


# ---------------------------------------------------------------- running


@pytest.fixture
def distant(tmp_path: Path) -> Project:
    """A project whose suite `distance` is locked."""
    project = add_kld(Project(tmp_path))
    project.lock()
    project.script.loads.clear()
    project.script.references.clear()
    return project


def test_a_run_has_the_reference_beside_each_point_that_is_held_against_it(distant: Project) -> None:
    ran = sealed(distant)
    assert distant.script.loads == ["a.gguf", "b.gguf"]
    assert distant.script.references == ["a.gguf", "a.gguf"]
    own, other = (score for score in ran.scores if score.suite == "distance")
    assert (own.score.what, own.score.value, own.score.items) == ("kld_nats", 0.0, 3)
    assert isinstance(own.distance, Distance)
    assert isinstance(other.distance, Distance)
    assert (own.distance.is_identical, other.distance.is_identical) == (True, False)
    assert other.score.value == other.distance.figures.kld_nats.value > 0
    assert {score.distance for score in ran.scores if score.suite != "distance"} == {UNSET}


def test_a_task_has_what_it_is_held_against(distant: Project) -> None:
    ran = distant.run(task="B@plain")
    assert ran.state == "sealed"
    assert (distant.script.loads, distant.script.references) == (["b.gguf"], ["a.gguf"])
    assert [score.job for score in ran.scores] == ["digits.B@plain.1", "distance.B@plain.1", "text.B@plain.1"]


def test_a_restart_puts_the_reference_beside_again(distant: Project) -> None:
    expected = undisturbed(distant)
    distant.script.references.clear()
    distant.script.kills["window-0002"] = 1
    ran = distant.run(repeat_lock=True)
    assert ran.answers_digest == expected
    assert distant.script.references == ["a.gguf"] * 3


def test_a_reference_that_speaks_otherwise_is_refused(distant: Project) -> None:
    opens(distant, Turned)
    ran = distant.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("canaries", "point.A@plain.plain_text_nats")]
    opens(distant, Other)
    ran = distant.run()
    assert wheres(ran) == [("read-back", "point.A@plain.read_back.threads")]


def test_a_run_is_checked_with_the_reference_beside(distant: Project) -> None:
    order = check.Asked(lock_path=distant.lock_path)
    assert check.check(distant.world, order, distant.script.open_engine).state == "verified"
    assert distant.script.references == ["a.gguf", "a.gguf"]
    opens(distant, Turned)
    found = check.check(distant.world, order, distant.script.open_engine)
    assert {finding.where for finding in found.findings} == {"point.A@plain.plain_text_nats"}


def test_what_was_held_against_a_file_that_was_touched_is_measured_again(distant: Project) -> None:
    def touch(item: str) -> None:
        if item == "window-0003" and "distance.B" in distant.progress[-1].job:
            distant.write("models/a.gguf", (distant.path / "models/a.gguf").read_bytes())

    distant.script.before_item = touch
    ran = distant.run()
    assert ran.state == "refused"
    folder = folder_of(distant, ran)
    lock, _ = folder.lock()
    rows = {job.name: len(folder.present_record(job.name).rows) for job in jobs(lock)}
    # Of B, what has nothing to do with A's file stays.
    assert {name for name, count in rows.items() if count} == {"digits.B@plain.1", "text.B@plain.1"}


def test_two_distances_are_paired_window_by_window(distant: Project) -> None:
    ran = sealed(distant)
    assert ran.folder is not None
    (comparison,) = diff.diff(distant.world, diff.Asked(left=str(ran.folder)))
    found = next(suite for suite in comparison.suite if suite.suite == "distance")
    assert (found.score.measure, found.score.pairs, found.kind) == ("kld", 3, "kld")
    assert isinstance(found.distances, Distances)
    assert isinstance(found.distances.a, Distance)
    assert isinstance(found.distances.b, Distance)
    assert (found.distances.a.is_identical, found.distances.b.is_identical) == (True, False)


def test_traces_are_run_and_their_tokens_told_apart(tmp_path: Path) -> None:
    project = Project(tmp_path)
    model = read_lock(project.lock(prove=False).data, name="x").model[0]
    text = b'{"name": "f", "arguments": {"city": "Rome"}} for 3 days'
    trace = a_trace(prompt=(256, 1), answer=tuple(text), slices={"part": "a"})
    header = a_header(1, tokenizer_digest=model.tokenizer_digest, tensors_digest=model.tensors_digest)
    add_kld(project, traces=write_traces(header, [trace])).lock()
    ran = sealed(project)
    (found,) = (score.distance for score in ran.scores if score.job == "distance.B@plain.1")
    assert isinstance(found, Distance)
    (kinds,) = found.parts
    assert kinds.by == "token-kind"
    assert {row.name for row in kinds.row} == {
        "argument-name",
        "argument-value",
        "function-name",
        "number",
        "prose",
        "punctuation",
    }


def test_cards_other_than_those_that_were_given_are_seen_with_the_reference_too(distant: Project) -> None:
    class Elsewhere(FakeEngine):
        """Puts a reference on a card that it was not given."""

        def refer(self, reference: Load | KeptFile) -> ReadBack | None:
            self._devices = ("0000:18:00.0",)
            return super().refer(reference)

    opens(distant, Elsewhere)
    ran = distant.run()
    assert wheres(ran) == [("read-back", "point.A@plain.cards")]
