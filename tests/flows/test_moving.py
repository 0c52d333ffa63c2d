from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.lock import Lock, ModelPin, SuitePin
from qlock.core.recipe import RecipeDifference, TypeChange
from qlock.flows.keeping import Kept
from qlock.flows.moving import Move, model_why, moves, point_moves, text_difference
from qlock.flows.pinning import fallen_back
from tests.fakes.documents import a_digest, a_lock, a_model, an_engine

OTHER = a_digest("other")


def with_models(**changes: Any) -> Lock:
    lock = a_lock()
    first, *rest = lock.model
    return msgspec.structs.replace(lock, model=(msgspec.structs.replace(first, **changes), *rest))


def with_suite(name: str, **changes: Any) -> Lock:
    lock = a_lock()
    suites = tuple(
        msgspec.structs.replace(suite, **changes) if suite.name == name else suite for suite in lock.suite
    )
    return msgspec.structs.replace(lock, suite=suites)


def other_file(suite: SuitePin) -> dict[str, Any]:
    return {"file": (msgspec.structs.replace(suite.file[0], sha256=OTHER, blake3=OTHER), *suite.file[1:])}


def test_the_same_lock_moves_nothing() -> None:
    assert moves(a_lock(), a_lock()) == ()


def test_what_changes_no_output_moves_nothing() -> None:
    assert moves(a_lock(), with_models(imatrix={"dataset": "other"}, warnings=("new",))) == ()


def test_a_model_that_was_asked_for_otherwise_was_asked_to_move() -> None:
    assert moves(a_lock(), with_models(requested="file:other.gguf", tensors_digest=OTHER)) == ()


def test_a_model_with_other_bytes_moved() -> None:
    lock = a_lock()
    name = lock.model[0].name
    why = "tensors differ; tokenizer, template, metadata identical"
    assert moves(lock, with_models(tensors_digest=OTHER)) == (Move(name=name, what="model", why=why),)


@pytest.mark.parametrize(
    "changes, why",
    [
        ({}, "the file has other bytes, its tensors and metadata are the same"),
        ({"template_digest": OTHER}, "template differs; tensors, tokenizer, metadata identical"),
        (
            {"tokenizer_digest": OTHER, "metadata_digest": OTHER},
            "tokenizer, metadata differ; tensors, template identical",
        ),
        (
            dict.fromkeys(
                ("tensors_digest", "tokenizer_digest", "template_digest", "metadata_digest"), OTHER
            ),
            "tensors, tokenizer, template, metadata differ",
        ),
    ],
)
def test_which_part_of_a_model_moved_is_said(changes: dict[str, Any], why: str) -> None:
    before: ModelPin = a_model()
    assert model_why(before, msgspec.structs.replace(before, **changes)) == why


def test_without_weights_the_totals_of_each_type_stand_for_the_recipe_unless_it_is_known() -> None:
    before = msgspec.structs.replace(a_model(), tensors_digest=UNSET)
    not_compared = "the bytes of the tensors were not compared"
    assert model_why(before, before) == (
        f"recipe by type, tokenizer, template, metadata identical; {not_compared}"
    )
    same = RecipeDifference(tensors_in_both=3, changed=(), reshaped=(), only_in_a=(), only_in_b=())
    assert model_why(before, before, same) == (
        f"recipe, tokenizer, template, metadata identical; {not_compared}"
    )
    changed = (TypeChange(tensor="t", type_a="Q4_K", type_b="Q6_K"),)
    differs = msgspec.structs.replace(same, changed=changed)
    assert model_why(before, before, differs) == (
        "recipe differs; tokenizer, template, metadata identical; 1 of 3 tensors has another type"
    )


def test_a_suite_moves_by_its_file_and_by_its_versions() -> None:
    lock = a_lock()
    suite = lock.suite[0]
    versions = {"ask": suite.ask_version + 1, "grade": suite.grade_version + 1}
    cases = {
        f"{suite.file[0].key}: the file changed": other_file(suite),
        f"this qlock asks version {versions['ask']} of it, the lock has {suite.ask_version}": {
            "ask_version": versions["ask"]
        },
        f"this qlock grades version {versions['grade']} of it, the lock has {suite.grade_version}": {
            "grade_version": versions["grade"]
        },
    }
    for why, changes in cases.items():
        assert moves(lock, with_suite(suite.name, **changes)) == (
            Move(name=suite.name, what="suite", why=why),
        )


def test_a_suite_of_another_kind_was_asked_for() -> None:
    suite = a_lock().suite[0]
    assert moves(a_lock(), with_suite(suite.name, kind="other", **other_file(suite))) == ()


def test_an_engine_that_nobody_had_looked_at_does_not_move() -> None:
    lock = a_lock()
    unseen = msgspec.structs.replace(
        lock, engine=(msgspec.structs.replace(lock.engine[0], file=(), label=""),)
    )
    assert moves(unseen, lock) == ()
    assert [move.what for move in moves(lock, unseen)] == ["engine"]


def test_an_engine_says_at_most_five_changed_facts() -> None:
    lock = a_lock()
    engine = an_engine(name=lock.engine[0].name, file=())
    (move,) = moves(lock, msgspec.structs.replace(lock, engine=(engine,)))
    assert len(move.why.split(", ")) == 5


def test_a_setting_that_falls_back_unasked_moves_and_one_that_stays_so_does_not() -> None:
    lock = a_lock()
    narrow = fallen_back(msgspec.structs.replace(lock.setting[0], slots=8), "M@s: shaky")
    wide = msgspec.structs.replace(
        lock, setting=(msgspec.structs.replace(lock.setting[0], slots=8, slots_why=""),)
    )
    fallen = msgspec.structs.replace(lock, setting=(narrow,))
    why = "falls back to 1 slot: M@s: shaky"
    assert moves(wide, fallen) == (Move(name=narrow.name, what="setting", why=why),)
    assert moves(fallen, fallen) == ()


def test_a_point_proved_again_moves_only_where_nothing_below_it_moved() -> None:
    lock = a_lock()
    pin = lock.point[0]
    kept = Kept(points={pin.name: msgspec.structs.replace(pin, plain_text_nats=1.25)})
    move = Move(name=pin.name, what="point", why="plain_text_nats")
    assert point_moves(kept, lock, ()) == (move,)
    assert point_moves(Kept(points={pin.name: pin}), lock, ()) == ()
    assert point_moves(Kept(), lock, ()) == ()
    for what, name in (("engine", "e"), ("device", "d"), ("setting", pin.setting)):
        assert point_moves(kept, lock, (Move(name=name, what=what, why=""),)) == ()


def test_two_locks_are_shown_as_a_unified_diff() -> None:
    assert text_difference(b"a\nb\n", b"a\nc\n", name="locks/x.toml").split("\n") == [
        "--- locks/x.toml (as it is)",
        "+++ locks/x.toml (as it would be)",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "+c",
        "",
    ]
    assert text_difference(b"a\n", b"a\n", name="x") == ""


def test_a_change_within_a_thousand_alike_entries_is_shown_alone() -> None:
    def text(*, digest: str, more: str = "") -> bytes:
        rows = "".join(
            f'[[model]]\nname = "m{number}"\ndigest = "{digest if number == 500 else number}"\n\n'
            f'[[model.file]]\nname = "m{number}.gguf"\nsize_bytes = 1\n{more if number == 700 else ""}\n'
            for number in range(1_000)
        )
        return rows.encode()

    found = text_difference(text(digest="a"), text(digest="b", more="blake3 = 1\n"), name="x")
    assert [line for line in found.split("\n")[2:] if line.startswith(("-", "+"))] == [
        '-digest = "a"',
        '+digest = "b"',
        "+blake3 = 1",
    ]
    assert "\0" not in found


@given(st.text("[]=\n ab.\0name", max_size=60), st.text("[]=\n ab.\0name", max_size=60))
def test_a_difference_is_empty_exactly_for_equal_texts(a: str, b: str) -> None:
    lines = [text.encode() for text in (a, b)]
    assert (text_difference(*lines, name="x") == "") is (a == b)
