import msgspec
import pytest

from qlock.core.sides import (
    device_of,
    engine_of,
    model_of,
    point_of,
    same_tokenizer,
    setting_of,
    suites_of,
)
from qlock.errors import InputError
from tests.fakes.comparisons import a_side, with_first
from tests.fakes.documents import a_digest


def test_a_side_is_looked_up_in_its_lock() -> None:
    side = a_side(model="Q4_K_M")
    assert point_of(side).name == "Q4_K_M@f16kv"
    assert model_of(side).name == "Q4_K_M"
    assert setting_of(side).name == "f16kv"
    assert engine_of(side).name == "embedded"
    assert device_of(side).name == "cpu-amd-1a-02"
    assert list(suites_of(side)) == ["wikitext", "orders"]


def test_tokenizers_are_told_apart_by_their_digest() -> None:
    other = with_first(a_side().lock, model={"tokenizer_digest": a_digest("x")})
    assert same_tokenizer(a_side(), a_side(model="Q4_K_M"))
    assert not same_tokenizer(a_side(), a_side(lock=other))


def test_a_suite_that_the_point_does_not_sit_is_not_its_own() -> None:
    side = a_side()
    text, exam = side.lock.suite
    lock = msgspec.structs.replace(
        side.lock, suite=(text, msgspec.structs.replace(exam, points=("Q4_K_M@f16kv",)))
    )
    assert list(suites_of(msgspec.structs.replace(side, lock=lock))) == ["wikitext"]


def test_an_unknown_point_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        point_of(a_side(point="F16@q8kv"))
    assert str(caught.value) == "got `F16@q8kv`, expected a point of this lock: F16@f16kv, Q4_K_M@f16kv"
