"""What a suite that is held against a reference needs of its points, seen when the spec is resolved."""

from __future__ import annotations

from pathlib import Path

from qlock.core.differing import brief
from qlock.core.lock import read_lock
from qlock.core.traces import write_traces
from qlock.errors import InputError
from tests.broken.make_gguf import STRING, U32, array, gguf, kv, tensor
from tests.core.test_traces import a_header, a_trace
from tests.fakes.documents import a_digest
from tests.fakes.kld import KLD, add_kld
from tests.fakes.project import Project, refusal

WORDS = ["a", "b", "c"]


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
