"""Gates that a run could not decide are told at `resolve` and when it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from qlock.core.facts import ProbeRow
from tests.fakes.engine import FakeEngine
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, sealed

COMPARE = '\n[compare]\nreference = "A@plain"\n'


class Restless(FakeEngine):
    """An engine whose answers nothing makes repeat."""

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        return tuple(
            ProbeRow(
                variation="repeat",
                rows=row.rows,
                rows_bitwise=0,
                rows_tokens=0,
                logit_difference_max=0.25,
                kl_nats_mean=0.01,
            )
            for row in super().probe(prompts, steps=steps)[:1]
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of 12 questions, 4 of them in the slice `a`."""
    project = Project(tmp_path, items=12)
    project.script.kind = Restless
    return project


def gated(project: Project, *gates: str, more: str = "") -> None:
    tables = "".join(f'[[gate]]\nsuite = "digits"\n{gate}\n' for gate in gates)
    project.write_spec(
        lambda text: text.replace('kind = "tasks"\n', f'kind = "tasks"\n{more}') + COMPARE + tables
    )


def told(project: Project) -> list[str]:
    """What a run tells when it begins."""
    said: list[str] = []
    project.run(tell=said.append)
    return said


def small(place: str, items: int) -> str:
    return (
        f"gate non-inferior of {place}: undecidable: {items} items cannot pass a margin of 20.0 % even where nothing "
        "differs, 16 or more can"
    )


def test_too_few_items_are_told_when_the_spec_is_resolved_and_when_the_run_begins(project: Project) -> None:
    rule = 'rule = "non-inferior"\nmargin_share = 0.2'
    gated(project, rule, f'{rule}\nslice = "a"', 'rule = "no-more-errors"')
    notes = [small("digits", 12), small("digits a", 4)]
    assert [note for note in project.lock().notes if note.startswith("gate")] == notes
    assert told(project) == notes


@pytest.mark.parametrize("repeats", [1, 3])
def test_too_few_answers_to_time_with_four_slots_are_told(project: Project, repeats: int) -> None:
    project.script.kind = FakeEngine  # which keeps its slots
    gated(project, 'rule = "speed-at-least"\nat_least_ratio = 0.9', more=f"repeats = {repeats}\n")
    note = (
        "gate speed-at-least of digits: undecidable: to see how steady a speed is, 40 answers are needed with 4 at once, "
        f"got {12 * repeats}"
    )
    assert [note for note in project.lock().notes if note.startswith("gate")] == [note]
    assert told(project) == [note]


def test_enough_answers_to_time_are_not_talked_of(project: Project) -> None:
    project.script.kind = FakeEngine  # which keeps its slots
    gated(project, 'rule = "speed-at-least"\nat_least_ratio = 0.9', more="repeats = 4\n")
    assert not [note for note in project.lock().notes if note.startswith("gate")]
    assert told(project) == []


def test_items_beyond_the_limit_are_not_asked(project: Project) -> None:
    gated(project, 'rule = "non-inferior"\nmargin_share = 0.2', more="limit = 5\n")
    assert [note for note in project.lock().notes if note.startswith("gate")] == [small("digits", 5)]


def with_a_distance(project: Project, windows: int) -> None:
    add_kld(project, more='[[gate]]\nsuite = "distance"\nrule = "kld"\nmargin_nats = 0.5\n')
    text = project.path / "specs/small.toml"
    project.write(
        "specs/small.toml",
        text.read_text().replace(
            "window_tokens = 64\nwindows = 3", f"window_tokens = 8\nwindows = {windows}"
        ),
    )


def test_too_few_windows_for_a_distance_are_told(project: Project) -> None:
    with_a_distance(project, 9)
    note = "gate kld of distance: undecidable: a verdict needs 10 items, got 9"
    assert [note for note in project.lock().notes if note.startswith("gate")] == [note]
    assert told(project) == [note]


def test_a_text_that_fills_its_windows_with_one_token_more_than_bytes_is_not_refused(
    project: Project,
) -> None:
    with_a_distance(project, 2)
    project.write("data/text.txt", b"sixteen bytes" + b"..")  # 15, and BOS in front
    assert not [note for note in project.lock().notes if note.startswith("gate")]
    assert told(project) == []


def test_enough_windows_are_not_talked_of(project: Project) -> None:
    with_a_distance(project, 10)
    assert not [note for note in project.lock().notes if note.startswith("gate")]
    assert told(project) == []


def test_enough_items_are_not_talked_of(project: Project) -> None:
    gated(project, 'rule = "non-inferior"\nmargin_share = 0.3')
    assert not [note for note in project.lock().notes if note.startswith("gate")]
    assert told(project) == []


def test_a_sealed_run_is_not_told_of_again(project: Project) -> None:
    gated(project, 'rule = "non-inferior"\nmargin_share = 0.2')
    project.lock()
    assert len(told(project)) == 1
    assert told(project) == []


def noise(share: str, runs: str) -> str:
    return (
        f"gate no-more-errors of digits: undecidable: its margin of 5.0 % lies under the noise of {share} "
        f"between {runs}"
    )


def run_again(project: Project, **replies: str) -> str:
    """Run the lock once more with other answers; gives the name of the folder."""
    project.script.replies = {**dict.fromkeys((f"q{n:02d}" for n in range(12)), "x"), **replies}
    ran = project.run(repeat_lock=True)
    assert ran.state == "sealed"
    assert ran.folder is not None
    return ran.folder.name


def test_two_earlier_runs_show_the_noise_that_a_margin_lies_under(project: Project) -> None:
    gated(project, 'rule = "no-more-errors"\nmargin_share = 0.05')
    project.lock()
    one, other = run_again(project), run_again(project, q03="3")
    project.models["C"] = "file:models/a.gguf"
    gated(project, 'rule = "no-more-errors"\nmargin_share = 0.05')
    project.lock()
    assert told(project) == [noise("8.3 %", f"{one} and {other}")]


def test_one_run_or_equal_ones_show_no_noise(project: Project) -> None:
    gated(project, 'rule = "no-more-errors"\nmargin_share = 0.05')
    project.lock()
    sealed(project)
    said: list[str] = []
    project.run(repeat_lock=True, tell=said.append)
    project.run(repeat_lock=True, tell=said.append)
    assert said == []


def test_a_damaged_run_shows_nothing_and_stops_nothing(project: Project) -> None:
    gated(project, 'rule = "no-more-errors"\nmargin_share = 0.05')
    project.lock()
    name = run_again(project)
    run_again(project, q03="3")
    record = project.runs / name / "record" / "digits.A@plain.1.jsonl"
    record.write_bytes(b"gone\n")
    said: list[str] = []
    assert project.run(repeat_lock=True, tell=said.append).state == "sealed"
    assert said == [noise("8.3 %", f"{name} and {name}.2")]  # of the other point
    (project.runs / name / "seal.json").write_bytes(b"{}")
    said.clear()
    assert project.run(repeat_lock=True, tell=said.append).state == "sealed"
    assert said == []


def test_points_that_repeat_bit_for_bit_are_not_looked_at(project: Project) -> None:
    project.script.kind = FakeEngine
    gated(project, 'rule = "no-more-errors"\nmargin_share = 0.05')
    project.lock()
    name = run_again(project)
    run_again(project, q03="3")
    (project.runs / name / "seal.json").write_bytes(b"{}")
    said: list[str] = []
    project.run(repeat_lock=True, tell=said.append)
    assert said == []
