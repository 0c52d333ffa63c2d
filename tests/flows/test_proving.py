from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.core.canaries import CANARIES, PROBE_PROMPTS, STEPS
from qlock.core.digest import digest_of
from qlock.core.facts import ReadBack
from qlock.engines.interface import Broken, Done, Generated, Load, Measured
from qlock.errors import EngineError
from qlock.flows import proving
from qlock.world.interface import World
from tests.fakes.documents import a_prompts, a_setting
from tests.fakes.engine import FakeEngine, Script
from tests.fakes.world import fake_world

SETTING = a_setting(context_tokens=2048, slots=4, slots_requested=4)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path / "engine")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return fake_world(tmp_path)


def loaded(script: Script, *, context_tokens: int = 2048) -> tuple[FakeEngine, ReadBack]:
    engine = script.open_engine()
    setting = msgspec.structs.replace(SETTING, context_tokens=context_tokens)
    return engine, engine.load(Load(weights=(str(script.folder / "libllama.so"),), setting=setting))


class Faulty(FakeEngine):
    """Gives one answer of the test's own."""

    fault: Done

    def next_done(self) -> Done:
        done = super().next_done()
        return self.fault if done.id == self.fault.id else done


def test_every_canary_that_fits_is_decoded_and_the_plain_text_is_scored(script: Script) -> None:
    behaviour = proving.behave(*loaded(script))
    assert [canary.name for canary in behaviour.canary] == sorted(CANARIES)
    assert behaviour.plain_text_nats == pytest.approx(2.0, rel=0.1)
    assert proving.behave(*loaded(script)) == behaviour
    script.salt = "broken"
    assert proving.behave(*loaded(script)) != behaviour


def test_a_sampler_that_draws_otherwise_is_seen_at_the_sampled_canary_alone(script: Script) -> None:
    before = proving.behave(*loaded(script))
    script.sampler = "broken"
    after = proving.behave(*loaded(script))
    pairs = zip(before.canary, after.canary, strict=True)
    assert [was.name for was, is_now in pairs if was != is_now] == ["sampled"]
    assert before.plain_text_nats == after.plain_text_nats


def test_every_rule_of_the_sampler_is_at_work_and_never_changes() -> None:
    off = msgspec.structs.asdict(proving.GREEDY)
    drawn = msgspec.structs.asdict(proving.DRAWN)
    assert {name for name in off if off[name] == drawn[name]} == {"answer_tokens", "stop", "ignore_eos"}
    # Every lock pins what was drawn by these rules.
    assert (
        digest_of("sampling", drawn)
        == "blake3:346a0bfde7679caf59ce8b6dd98d57115d73f5aa339c052b2b8c58e49fccc02a"
    )


def test_a_canary_that_does_not_fit_the_context_is_left_out(script: Script) -> None:
    longest = max(len(text.encode()) for text in CANARIES.values()) + 1
    behaviour = proving.behave(*loaded(script, context_tokens=longest + STEPS - 1))
    assert [canary.name for canary in behaviour.canary] == sorted(set(CANARIES) - {"long-prompt"})
    behaviour = proving.behave(*loaded(script, context_tokens=longest + STEPS))
    assert len(behaviour.canary) == len(CANARIES)


def a_generated(**changes: object) -> Generated:
    plain = Generated(
        id="code",
        tokens=(1,),
        text="",
        ending="budget",
        why="",
        logprobs=(),
        logits_digest="blake3:00",
        prefill_s=0.0,
        decode_s=0.0,
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize(
    "fault, message",
    [
        (Broken(id="code", why="NaN"), "the canary `code` could not be decoded: NaN"),
        (a_generated(logits_digest=""), "the canary `code` could not be decoded: no logits came back"),
        (a_generated(ending="error", why="bad"), "the canary `code` could not be decoded: bad"),
        (
            Measured(id="code", nats=(1.0,), elapsed_s=0.0),
            "the canary `code` came back scored, expected tokens",
        ),
        (Broken(id="plain-text", why="NaN"), "the plain text could not be scored: NaN"),
        (
            Measured(id="plain-text", nats=(), elapsed_s=0.0),
            "the plain text could not be scored: no values came back",
        ),
    ],
)
def test_an_answer_of_unexpected_shape_is_an_error(script: Script, fault: Done, message: str) -> None:
    engine, read_back = loaded(script)
    faulty = Faulty(script, script.folder, ())
    faulty.fault = fault
    faulty.load(Load(weights=(str(script.folder / "libllama.so"),), setting=SETTING))
    with pytest.raises(EngineError) as caught:
        proving.behave(faulty, read_back)
    assert str(caught.value) == message
    engine.close()


def test_the_probe_is_run_on_the_canaries_that_fit(script: Script) -> None:
    engine, read_back = loaded(script)
    assert {row.rows for row in proving.probe(engine, read_back)} == {len(PROBE_PROMPTS)}
    engine, read_back = loaded(script, context_tokens=256)
    assert {row.rows for row in proving.probe(engine, read_back)} == {len(PROBE_PROMPTS) - 1}


def test_the_proof_says_how_far_the_point_repeats(script: Script) -> None:
    prompts = (a_prompts("orders"),)
    engine, read_back = loaded(script)
    proof = proving.proof(engine, read_back, setting=SETTING, prompts=prompts)
    assert (proof.repeatable, proof.prompts, proof.read_back) == ("bitwise", prompts, read_back)
    script.shaky = {"libllama.so"}
    engine, read_back = loaded(script)
    assert proving.proof(engine, read_back, setting=SETTING, prompts=prompts).repeatable == "tokens"


def test_an_engine_is_pinned_by_the_files_that_can_change_output(script: Script, world: World) -> None:
    engine, _ = loaded(script)
    seen = proving.engine_facts(world, engine, name="e", kind="k", environment={})
    assert [(file.name, file.role) for file in seen.file] == [
        ("libllama.so", "build"),
        ("libm.so.6", "math"),
        ("libc.so.6", "system"),
    ]
    assert [file.name for file in proving.pinned(seen).file] == ["libllama.so", "libm.so.6"]
    assert (seen.name, seen.kind, seen.label, seen.system_info) == (
        "e",
        "k",
        "b6000 (fake)",
        "CPU : FAKE = 1",
    )


def test_seeing_the_engine_again_finds_what_changed_and_what_cannot_be_read_any_more(
    script: Script, world: World
) -> None:
    engine, _ = loaded(script)
    pin = proving.pinned(proving.engine_facts(world, engine, name="e", kind="k", environment={}))
    seen, found = proving.see_engine(world, engine, pin, rule="engine-files")
    assert seen is not None
    assert (len(seen.file), found) == (3, [])
    script.label = "another"
    assert [finding.effect for finding in proving.see_engine(world, engine, pin, rule="engine-files")[1]] == [
        "note"
    ]
    (script.folder / "new").write_bytes(b"other")
    (script.folder / "new").replace(script.folder / "libm.so.6")
    seen, (finding,) = proving.see_engine(world, engine, pin, rule="after-the-run")
    assert (seen, finding.rule, finding.where, finding.found) == (
        None,
        "after-the-run",
        "engine.e.file",
        "missing",
    )
    assert finding.why.startswith(
        f"`{script.folder}/libm.so.6` was replaced while the engine ran it: got inode"
    )


def test_plain_text_that_costs_as_much_as_guessing_is_insane(script: Script) -> None:
    script.nats = 5.0
    engine, read_back = loaded(script)
    (finding,) = proving.insane(proving.behave(engine, read_back), read_back, where="point.p")
    assert (finding.rule, finding.where, finding.expected) == (
        "canaries",
        "point.p.plain_text_nats",
        "below 3.70",
    )
    script.nats = 3.0
    engine, read_back = loaded(script)
    assert proving.insane(proving.behave(engine, read_back), read_back, where="point.p") == []
