from __future__ import annotations

import msgspec
import numpy as np
import pytest

from qlock.core.facts import ProbeRow
from qlock.engines.llama_cpp_python.probe import kl_nats, probe
from qlock.errors import EngineError
from tests.fakes.decoder import SETTING, FakeDecoder, Leak

PROMPTS = ((1, 5), (1, 6, 7), (1, 8), (1, 9, 3, 4), (1, 7, 7))
STEPS = 3


def probed(leak: Leak | None = None, *, slots: int = 4) -> dict[str, ProbeRow]:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, slots=slots), leak=leak)
    return {row.variation: row for row in probe(decoder, PROMPTS, steps=STEPS, alive=lambda: None)}


def moved(leak: Leak, *, slots: int = 4) -> set[str]:
    rows = probed(leak, slots=slots)
    return {name for name, row in rows.items() if row.rows_bitwise < row.rows}


def test_a_schedule_that_changes_nothing_is_bitwise_in_every_variation() -> None:
    names = ("repeat", "permute", "dummies", "copies", "long-neighbours", "threads", "width")
    same = {
        name: ProbeRow(
            variation=name, rows=5, rows_bitwise=5, rows_tokens=5, logit_difference_max=0.0, kl_nats_mean=0.0
        )
        for name in names
    }
    assert probed() == same


def test_with_one_slot_there_are_no_neighbours_to_vary() -> None:
    assert list(probed(slots=1)) == ["repeat", "threads"]


def test_a_leak_of_the_row_is_found_by_moving_rows() -> None:
    assert moved(lambda _, row, __: row / 8) >= {"permute", "dummies", "copies", "long-neighbours"}
    assert "repeat" not in moved(lambda _, row, __: row / 8)


def test_a_leak_between_equal_rows_is_found_by_copies() -> None:
    def twins(decoder: FakeDecoder, row: int, _: int) -> float:
        return float(sum(held == decoder.held[row] for held in decoder.held) > 1)

    assert "copies" in moved(twins)


def test_a_leak_of_a_long_neighbour_is_found_by_one() -> None:
    assert moved(lambda decoder, _, __: float(max(map(len, decoder.held)) > 100)) == {"long-neighbours"}


def test_a_leak_of_the_width_and_of_the_threads_is_told() -> None:
    assert moved(lambda _, __, rows: rows / 8) == {"width"}
    assert moved(lambda decoder, _, __: decoder.threads[0] / 8) == {"threads"}
    assert moved(lambda decoder, _, __: decoder.threads[1] / 8, slots=1) == {"threads"}


def test_a_state_that_stays_behind_is_found_by_repeating() -> None:
    def tired(decoder: FakeDecoder, _: int, __: int) -> float:
        return float(len(decoder.widths) > 2 * STEPS)

    assert moved(tired, slots=1) == {"repeat", "threads"}
    assert "repeat" in moved(tired)


def test_prompts_are_prefilled_again_where_prefilling_is_varied_and_put_back_elsewhere() -> None:
    decoder = FakeDecoder()
    long = tuple(3 + number % 20 for number in range(250))
    probe(decoder, (*PROMPTS[:3], long[:240]), steps=STEPS, alive=lambda: None)
    rows = sum(map(len, PROMPTS[:3])) + 240
    length = decoder.setting.context_tokens - STEPS
    assert sum(decoder.batches) == 4 * rows + 2 * length, (
        "plain, repeat, permute, threads; a long neighbour twice"
    )
    assert decoder.put == 4 + 4 + 4 + 4, "dummies, copies, long-neighbours, width"


def test_a_long_prompt_is_the_long_neighbour_itself() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, context_tokens=512))
    long = tuple(3 + number % 20 for number in range(300))
    probe(decoder, (*PROMPTS[:3], long), steps=STEPS, alive=lambda: None)
    assert sum(decoder.batches) == 4 * (sum(map(len, PROMPTS[:3])) + 300)


def test_where_nothing_can_be_put_back_all_is_prefilled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = probed()
    batches = []
    for refuses in (True, False):
        decoder = FakeDecoder()
        decoder.puts_back = not refuses
        if not refuses:
            monkeypatch.setattr("qlock.engines.llama_cpp_python.probe._MOST_KEPT_BYTES", 0)
        rows = probe(decoder, PROMPTS, steps=STEPS, alive=lambda: None)
        assert {row.variation: row for row in rows} == plain
        batches.append(len(decoder.batches))
    assert batches[0] == batches[1] > len(PROMPTS) * 7


def test_a_cache_that_is_not_what_it_was_counts_against_the_model() -> None:
    class Forgetful(FakeDecoder):
        def put_back(self, sequence: int, kept: bytes) -> bool:
            done = super().put_back(sequence, kept)
            self.held[sequence][0] += 1
            return done

    rows = probe(Forgetful(), PROMPTS, steps=STEPS, alive=lambda: None)
    assert {row.variation for row in rows if row.rows_bitwise < row.rows} == {
        "dummies",
        "copies",
        "long-neighbours",
        "width",
    }


def test_the_size_of_a_difference_is_told_and_tokens_are_counted_apart() -> None:
    row = probed(lambda _, __, rows: 0.25 if rows == 2 else 0.0)["width"]
    assert row.rows_bitwise == 0
    assert row.logit_difference_max == pytest.approx(0.25, abs=1e-6)
    assert 0 < row.kl_nats_mean < 0.05
    assert probed(lambda _, __, rows: 99.0 if rows == 2 else 0.0)["width"].rows_tokens == 0


def test_the_plain_tokens_are_forced_so_that_one_difference_does_not_spread() -> None:
    row = probed(lambda _, __, rows: 99.0 if rows == 2 else 0.0)["width"]
    assert row.logit_difference_max == pytest.approx(99.0, abs=1e-4)


def test_the_threads_are_those_of_the_setting_again_afterwards() -> None:
    decoder = FakeDecoder()
    probe(decoder, PROMPTS, steps=STEPS, alive=lambda: None)
    assert decoder.threads == (SETTING.threads, SETTING.batch_threads)
    assert all(held == [] for held in decoder.held)


def test_full_width_is_kept_in_every_variation_but_one() -> None:
    decoder = FakeDecoder()
    probe(decoder, PROMPTS, steps=STEPS, alive=lambda: None)
    assert set(decoder.widths) == {4, 2}
    assert decoder.widths.index(2) == len(decoder.widths) - 3 * STEPS


@pytest.mark.parametrize(
    "prompts, steps, message",
    [
        ((), 3, "got `0` prompts and `3` steps to probe, expected at least one"),
        (PROMPTS, 0, "got `5` prompts and `0` steps to probe, expected at least one"),
        (((1,) * 254,), 3, "cannot probe with a prompt of `254` tokens, room is for `253`"),
        (((),), 3, "cannot probe with a prompt of `0` tokens, room is for `253`"),
    ],
)
def test_prompts_that_cannot_be_probed_are_refused(
    prompts: tuple[tuple[int, ...], ...], steps: int, message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        probe(FakeDecoder(), prompts, steps=steps, alive=lambda: None)
    assert caught.value.message == message


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(EngineError, match=r"^cannot probe the schedule: logits are not finite$"):
        probed(lambda _, __, ___: float("nan"))


def test_kl_of_two_coins() -> None:
    fair, biased = np.log(np.array([[0.5, 0.5], [0.75, 0.25]], dtype=np.float32))
    assert kl_nats(fair, biased) == pytest.approx(
        0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25), abs=1e-7
    )
    assert kl_nats(fair, fair) == 0.0
