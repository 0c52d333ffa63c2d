"""Prompts of points whose weights are not here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import UNSET

from qlock.core.digest import sha256_of
from qlock.core.effects import changes
from qlock.core.lock import Lock, PointPin, PromptsPin
from qlock.errors import InputError
from qlock.flows.fetch import Asked as Fetch
from qlock.flows.fetch import fetch
from qlock.flows.moving import Move
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, items_jsonl, refusal, tiny_gguf
from tests.fakes.world import ScriptedRemote

PADDING = bytes(4_000)
"""Makes a file large enough for LFS."""
POINTS = ("A@plain", "B@plain")
MORE = '\n[[suite]]\nname = "more"\nkind = "tasks"\nitems = "file:tasks/digits.jsonl"\nlimit = 2\n'
FIELDS = ("canary", "plain_text_nats", "probe", "read_back", "repeatable")


def weights(seed: int = 1, template: str = "[{{ messages[0].content }}]", **keys: int) -> bytes:
    return tiny_gguf(seed, template=template, **keys) + PADDING


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        hub.repository("o/m").commit({"m-Q4_K_M.gguf": weights(1), "m-Q8_0.gguf": weights(2)})
        yield hub


@pytest.fixture
def project(tmp_path: Path, stub: FakeHub) -> Project:
    made = Project(tmp_path)
    made.connect(stub)
    made.models = {"A": "hub:o/m:Q4_K_M", "B": "hub:o/m:Q8_0"}
    made.write("tasks/digits.jsonl", items_jsonl(8).replace(b'"prompt": "1 and 1 is"', CONVERSATION))
    made.write_spec()
    return made


CONVERSATION = b'"messages": [{"role": "user", "content": "1 and 1 is"}]'


def prompts(lock: Lock, name: str = "A@plain") -> tuple[PromptsPin, ...]:
    found = point(lock, name).prompts
    assert found is not UNSET
    return found


def point(lock: Lock, name: str) -> PointPin:
    return next(pin for pin in lock.point if pin.name == name)


def why(lock: Lock) -> dict[str, str]:
    """Pins of points and suites that are missing."""
    return {entry.pin: entry.why for entry in lock.missing if not entry.pin.startswith("model.")}


def bring(project: Project) -> None:
    fetch(project.world, Fetch(lock_path=project.lock_path), lambda _: None)


# With the header alone


def test_what_is_asked_is_pinned_from_the_header_and_the_rest_is_missing(project: Project) -> None:
    lock = project.lock().lock
    assert [(pin.suite, pin.items) for pin in prompts(lock)] == [("digits", 8), ("text", 3)]
    assert why(lock) == {
        f"point.{name}@plain.{field}": "the weights are not here" for name in "AB" for field in FIELDS
    }
    assert [(suite.items_limit, suite.items_all) for suite in lock.suite] == [(8, True), (3, True)]
    assert lock.engine[0].file == ()
    assert (project.script.loads, project.script.opened, project.script.closed) == ([], 1, 1)


def test_the_weights_give_the_same_prompts_and_only_fill_in(project: Project) -> None:
    before = project.lock()
    bring(project)
    after = project.lock()
    assert (after.moves, {entry.until for entry in after.lock.missing}) == ((), {"never"})
    assert [prompts(after.lock, name) for name in POINTS] == [prompts(before.lock, name) for name in POINTS]
    assert project.script.loads == ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    others = {
        change.path
        for change in changes(before.lock, after.lock)
        if change.before is not UNSET and not change.path.startswith(("missing", "engine"))
    }
    assert others == {f"point.{name}.repeatable_why" for name in POINTS}


def test_a_lock_made_without_and_with_the_weights_has_the_same_prompts(
    project: Project, stub: FakeHub, tmp_path: Path
) -> None:
    without = project.resolve().lock
    whole = Project(tmp_path / "whole")
    whole.models = {"A": "file:models/a.gguf", "B": "file:models/b.gguf"}
    whole.write("models/a.gguf", weights(1))
    whole.write("models/b.gguf", weights(2))
    whole.write("tasks/digits.jsonl", (project.path / "tasks/digits.jsonl").read_bytes())
    whole.write_spec()
    assert [prompts(without, name) for name in POINTS] == [
        prompts(whole.resolve().lock, name) for name in POINTS
    ]


def test_one_vocabulary_is_loaded_once_for_all_that_share_it(project: Project, stub: FakeHub) -> None:
    names = [f"m-Q{number}_0.gguf" for number in range(1, 7)]
    files = {name: weights(number) for number, name in enumerate(names)}
    stub.repository("o/many").commit({**files, "other-BF16.gguf": weights(9, embedding_length=7)})
    project.models = {f"M{number}": f"hub:o/many/{name}" for number, name in enumerate(names)}
    project.models["Z"] = "hub:o/many:BF16"
    project.write_spec()
    lock = project.lock().lock
    assert len(project.script.vocabularies) == len(set(project.script.vocabularies)) == 2
    assert len({prompts(lock, pin.name) for pin in lock.point}) == 1
    assert project.script.opened == 1


def test_another_template_is_another_text_under_the_same_vocabulary(project: Project, stub: FakeHub) -> None:
    stub.repository("o/m").commit({"m-Q8_0.gguf": weights(2, template="<{{ messages[0].content }}>")})
    lock = project.lock().lock
    assert len(project.script.vocabularies) == 1
    (a, text_a), (b, text_b) = (prompts(lock, name) for name in POINTS)
    assert (a.text_digest != b.text_digest, a.items_digest == b.items_digest) == (True, True)
    assert text_a == text_b


def test_a_point_without_a_suite_needs_no_engine(project: Project) -> None:
    del project.models["B"]
    project.models["B"] = "file:models/b.gguf"
    project.write_spec(
        lambda text: text.replace('kind = "tasks"', 'kind = "tasks"\nmodels = ["B"]').replace(
            'kind = "perplexity"', 'kind = "perplexity"\nmodels = ["B"]'
        )
    )
    assert prompts(project.resolve().lock) == ()
    assert (project.script.vocabularies, project.script.opened) == ([], 1)


def test_each_step_is_told(project: Project) -> None:
    project.resolve()
    assert project.steps == [
        "reading the headers of 2 models",
        "2 points without weights: rendering and tokenizing",
    ]


# What cannot be asked


def test_a_prompt_that_leaves_no_room_is_refused_before_anything_is_downloaded(
    project: Project, tmp_path: Path
) -> None:
    project.write("tasks/digits.jsonl", items_jsonl(2).replace(b"1 and 1 is", b"x" * 2100))
    assert refusal(project, InputError) == (
        (
            "point.A@plain.suite.digits.q01: got a prompt of `2101` tokens, which leaves no room for an answer in a "
            "context of `2048`"
        ),
        "raise `context_tokens` of the setting, or shorten the item",
    )
    assert not (tmp_path / "hf").exists()


def test_an_item_that_cannot_be_asked_elsewhere_costs_no_proof(project: Project) -> None:
    project.models["C"] = "file:models/a.gguf"
    wide = 'kind = "tasks"\nmodels = ["A"]'
    project.write_spec(lambda text: text.replace('kind = "tasks"', wide))
    project.write("tasks/digits.jsonl", items_jsonl(2).replace(b"1 and 1 is", b"x" * 2100))
    assert refusal(project, InputError)[0].startswith("point.A@plain.suite.digits.q01: got a prompt of")
    assert project.script.loads == []


def test_answers_that_the_context_may_end_are_a_note(project: Project) -> None:
    project.write("tasks/digits.jsonl", items_jsonl(2).replace(b"1 and 1 is", b"x" * 2042))
    assert project.resolve().notes == (
        (
            "points A@plain, B@plain: the context may end 1 of 2 answers of suite digits: prompt and `answer_tokens = 8` "
            "come to up to 2051 tokens, the context has 2048"
        ),
    )


def test_a_gold_reply_that_is_not_graded_right_is_refused_without_the_weights_too(project: Project) -> None:
    row = b'{"id": "q", "prompt": "1", "expected": "1", "grader": {"kind": "exact"}, "gold": "2"}\n'
    project.write("tasks/digits.jsonl", row)
    assert refusal(project, InputError)[0] == (
        "point.A@plain.suite.digits.q: the gold reply must be graded as right, got `wrong: got `2`, expected `1``"
    )


# What the engine cannot do


def test_without_an_engine_the_prompts_stay_missing_and_the_lock_is_made(project: Project) -> None:
    project.script.start_error = f"the engine did not start: no libllama.so in {project.path}"
    resolved = project.lock()
    reason = "no engine could be started to tell them without the weights"
    assert {pin: told for pin, told in why(resolved.lock).items() if told == reason} == {
        "point.A@plain.prompts": reason,
        "point.B@plain.prompts": reason,
        "suite.digits.items_limit": reason,
        "suite.text.items_limit": reason,
    }
    assert resolved.notes == (
        (
            "points A@plain, B@plain: the prompts are not pinned yet: the engine did not start: no libllama.so in "
            f"{project.path}"
        ),
    )
    assert str(project.path) not in resolved.data.decode()


def test_with_an_engine_later_they_are_filled_in(project: Project, stub: FakeHub) -> None:
    project.script.start_error = "the engine did not start"
    project.lock()
    project.script.start_error = ""
    stub.seen.clear()
    after = project.lock()
    assert (after.moves, "point.A@plain.prompts" in why(after.lock)) == ((), False)
    assert prompts(after.lock) == prompts(after.lock, "B@plain")
    # The header of each model once more, by ranges; and whether the branch has moved.
    assert len([one for one in stub.seen if one.server == "cdn"]) == 2


def test_an_engine_that_dies_of_a_vocabulary_is_started_again_for_the_next(
    project: Project, stub: FakeHub
) -> None:
    stub.repository("o/m").commit({"m-Q8_0.gguf": weights(2, embedding_length=7)})
    project.script.no_vocabulary = "the engine died (signal SIGABRT)"
    resolved = project.resolve()
    assert why(resolved.lock)["point.A@plain.prompts"] == "the engine could not tell them without the weights"
    assert resolved.notes == (
        "points A@plain, B@plain: the prompts are not pinned yet: the engine died (signal SIGABRT)",
    )
    assert (len(project.script.vocabularies), project.script.opened) == (2, 2)


# The lock that was there


def test_a_second_resolve_asks_neither_engine_nor_hub_for_prompts(project: Project, stub: FakeHub) -> None:
    before = project.lock()
    stub.seen.clear()
    again = project.resolve()
    assert (again.state, again.data, project.script.opened) == ("same", before.data, 1)
    assert stub.paths() == ["GET /api/models/o/m/revision/main"]


def test_a_new_suite_alone_is_asked_and_the_other_prompts_are_kept(project: Project, stub: FakeHub) -> None:
    before = project.lock()
    project.write_spec(lambda text: text + MORE)
    stub.seen.clear()
    after = project.resolve()
    assert (after.moves, [pin.suite for pin in prompts(after.lock)]) == ((), ["digits", "more", "text"])
    assert [pin for pin in prompts(after.lock) if pin.suite != "more"] == list(prompts(before.lock))
    # Both models have one tokenizer and one template, so one header tells both.
    assert len([one for one in stub.seen if one.server == "cdn"]) == 1
    assert len(set(project.script.vocabularies)) == 1


def more_asked(project: Project) -> Lock:
    """The lock with a further suite, for which headers are read again."""
    project.write_spec(lambda text: text + MORE)
    return project.lock().lock


def test_a_header_is_read_again_for_each_template(project: Project, stub: FakeHub) -> None:
    stub.repository("o/m").commit({"m-Q8_0.gguf": weights(2, template="<{{ messages[0].content }}>")})
    before = project.lock().lock
    stub.seen.clear()
    after = more_asked(project)
    assert len([one for one in stub.seen if one.server == "cdn"]) == 2
    for name in POINTS:
        assert len(prompts(after, name)) == len(prompts(before, name)) + 1
    assert prompts(after, "A@plain")[1].text_digest != prompts(after, "B@plain")[1].text_digest


def test_what_was_read_once_for_two_is_what_each_would_have_told(project: Project, stub: FakeHub) -> None:
    project.lock()
    after = more_asked(project)
    project.lock_path.unlink()
    assert project.lock().lock == after


def test_where_the_one_header_is_gone_the_others_are_read(project: Project, stub: FakeHub) -> None:
    project.models = {"A": "hub:o/m:Q4_K_M", "B": "hub:o/n:Q8_0"}
    stub.repository("o/n").commit({"m-Q8_0.gguf": weights(2)})
    project.write_spec()
    project.lock()
    del stub.repositories["model", "o/m"]
    lock = more_asked(project)
    assert why(lock)["point.A@plain.prompts"] == "the header could not be read again"
    assert len(prompts(lock, "B@plain")) == 3


def test_a_new_suite_without_network_stays_missing(project: Project, stub: FakeHub) -> None:
    project.lock()
    project.write_spec(
        lambda text: text.replace("answer_tokens = 8", "answer_tokens = 8\n[suite.prompt]\nsystem = 'x'")
    )
    project.connect(stub, HF_HUB_OFFLINE="1")
    resolved = project.resolve()
    reason = "the header could not be read again"
    assert why(resolved.lock)["point.A@plain.prompts"] == reason
    assert why(resolved.lock)["suite.digits.items_limit"] == reason
    assert resolved.notes == tuple(
        f"point {name}@plain: the prompts are not pinned yet: model.{name}: `{file}` of repository `o/m` is not in the "
        "Hub's cache, and no network may be used"
        for name, file in (("A", "m-Q4_K_M.gguf"), ("B", "m-Q8_0.gguf"))
    )


def test_another_header_behind_an_address_is_not_taken_for_the_pinned_one(
    project: Project, tmp_path: Path
) -> None:
    address = "https://x.org/m.gguf"
    remote = ScriptedRemote(tmp_path / "url", {address: weights(1)})
    project.change_world(remote=remote)
    project.models = {"A": f"url:{address}#{sha256_of(weights(1)).replace(':', '=')}"}
    project.write_spec()
    project.script.start_error = "the engine did not start"
    project.lock()
    project.script.start_error = ""
    remote.by_url[address] = weights(1, template="[{{ messages[1].content }}]")
    resolved = project.resolve()
    assert why(resolved.lock)["point.A@plain.prompts"] == "the header could not be read again"
    assert resolved.notes == (
        "point A@plain: the prompts are not pinned yet: model.A: `m.gguf` has another header there now than is pinned",
    )
    remote.by_url[address] = weights(1)
    assert len(prompts(project.resolve().lock)) == 2


def test_another_context_of_the_setting_is_asked_anew(project: Project) -> None:
    project.lock()
    project.write_spec(lambda text: text.replace("context_tokens = 2048", "context_tokens = 1024"))
    project.resolve()
    assert len(project.script.vocabularies) == 2


def test_without_proving_the_prompts_that_are_pinned_are_kept(project: Project) -> None:
    before = project.lock()
    assert project.resolve(prove=False).data == before.data
    project.write_spec(lambda text: text.replace("context_tokens = 2048", "context_tokens = 1024"))
    lock = project.resolve(prove=False).lock
    assert why(lock)["point.A@plain.prompts"] == "the engine was not asked"
    assert why(lock)["point.A@plain.canary"] == "the weights are not here"
    assert (project.script.opened, why(lock)["suite.text.items_limit"]) == (1, "the engine was not asked")


def test_the_first_proof_asks_nothing_again_of_what_is_not_here(project: Project, stub: FakeHub) -> None:
    before = project.lock()
    fetch(project.world, Fetch(lock_path=project.lock_path, only=("A",)), lambda _: None)
    stub.seen.clear()
    after = project.lock()
    assert (project.script.loads, len(project.script.vocabularies)) == (["m-Q4_K_M.gguf"], 1)
    assert [one for one in stub.seen if one.server == "cdn"] == []
    assert point(after.lock, "B@plain") == point(before.lock, "B@plain")


def test_another_engine_asks_anew(project: Project) -> None:
    project.models["C"] = "file:models/a.gguf"
    project.write_spec()
    project.lock()
    project.script.vocabularies.clear()
    project.script.system_info = "CPU : OTHER = 1"
    after = project.resolve(upgrade=("engine",))
    assert (after.moves, len(project.script.vocabularies)) == ((), 1)
    assert len(prompts(after.lock)) == 2


def test_prompts_that_the_weights_give_otherwise_are_a_move(project: Project) -> None:
    project.lock()
    bring(project)
    project.script.read_back = {"bos_text": "<bos>", "add_bos": False}
    moved = project.resolve().moves
    assert moved == tuple(
        Move(name=name, what="point", why="prompts.digits.tokens_digest") for name in POINTS
    )
    assert project.resolve(upgrade=("A@plain", "B@plain")).moves == ()


def test_a_model_that_this_engine_cannot_run_has_no_prompts(project: Project, stub: FakeHub) -> None:
    odd = tiny_gguf(1, type_id=156) + PADDING
    stub.repository("o/odd").commit({"m-Q4_0.gguf": odd})
    project.models = {"A": "hub:o/odd:Q4_0"}
    project.write_spec()
    lock = project.resolve().lock
    assert why(lock)["point.A@plain.prompts"] == "type 156 (unknown): needs ik_llama.cpp?"
    assert project.script.opened == 0
