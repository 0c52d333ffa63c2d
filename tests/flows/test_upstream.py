"""What is said of pins whose branch has moved, and of files that are not as locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qlock.flows.upstream import MOST_TOLD
from tests.broken.make_gguf import STRING, gguf, kv, tensor
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, tiny_gguf

PADDING = bytes(4_000)
FIXED = "{{ fixed }}"


def weights(seed: int = 1, **changes: str) -> bytes:
    return tiny_gguf(seed, template=changes.get("template", "{{ messages }}")) + PADDING


def calibrated(dataset: str, *types: int) -> bytes:
    fields = [
        kv("general.architecture", STRING, "llama"),
        kv("quantize.imatrix.dataset", STRING, dataset),
    ]
    place, tensors = 0, []
    for number, kind in enumerate(types):
        tensors.append(tensor(f"blk.{number}.attn_q.weight", (32,), kind, place))
        place += {0: 128, 1: 64}[kind]
    return gguf(fields, tensors, bytes(place)) + PADDING


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def project(tmp_path: Path, stub: FakeHub) -> Project:
    made = Project(tmp_path)
    made.connect(stub)
    made.models = {"A": "hub:o/m:Q4_K_M"}
    made.write_spec()
    return made


def uploaded(stub: FakeHub, data: bytes, title: str = "Upload") -> str:
    return stub.repository("o/m").commit({"m-Q4_K_M.gguf": data}, title)


def fetched(project: Project, commit: str) -> Path:
    listing = project.world.hub.listing("o/m", commit, paths=["m-Q4_K_M.gguf"])
    return project.world.hub.fetch(listing.snapshot, listing.files[0])


def reuploaded(project: Project, stub: FakeHub, before: bytes, after: bytes) -> list[str]:
    """Commits before and after, and the notes of a resolve after the second."""
    first = uploaded(stub, before)
    project.lock(prove=False)
    later = uploaded(stub, after, "Fix it")
    notes = project.resolve(prove=False).notes
    moved = f"`main` of `o/m` has moved from `{first[:7]}` to `{later[:7]}`: "
    stays = "what is pinned stays, `--upgrade A` lets it move"
    assert notes[0] == f"{moved}`A` changed there; {stays}"
    said = f"model A: upstream commit `{later[:7]}` of 2026-01-02 (`Fix it`) changed it: "
    assert notes[1].startswith(said)
    return [notes[1].removeprefix(said), *notes[2:]]


# A branch that moved


def test_another_template_is_told_from_the_header_alone(project: Project, stub: FakeHub) -> None:
    assert reuploaded(project, stub, weights(), weights(template=FIXED)) == [
        "template differs; recipe, tokenizer, metadata identical; the bytes of the tensors were not compared"
    ]
    assert stub.bytes_sent <= 3 * len(weights())


def test_another_imatrix_is_told(project: Project, stub: FakeHub) -> None:
    assert reuploaded(project, stub, calibrated("a.txt", 0), calibrated("b.txt", 0)) == [
        (
            "metadata differs; recipe, tokenizer, template identical; imatrix data set differs; "
            "the bytes of the tensors were not compared"
        )
    ]


def test_another_recipe_is_told(project: Project, stub: FakeHub) -> None:
    assert reuploaded(project, stub, calibrated("a", 0, 0, 0), calibrated("a", 1, 0, 1)) == [
        "recipe differs; tokenizer, template, metadata identical; 2 of 3 tensors have another type"
    ]


def test_another_recipe_of_the_same_totals_is_told(project: Project, stub: FakeHub) -> None:
    assert reuploaded(project, stub, calibrated("a", 0, 1, 1), calibrated("a", 1, 1, 0)) == [
        "recipe differs; tokenizer, template, metadata identical; 2 of 3 tensors have another type"
    ]


def test_tensors_that_came_and_went_are_told(project: Project, stub: FakeHub) -> None:
    assert reuploaded(project, stub, calibrated("a", 0, 0, 0), calibrated("a", 0, 1)) == [
        (
            "recipe differs; tokenizer, template, metadata identical; "
            "1 of 2 tensors has another type, 1 is only in the pinned file"
        )
    ]


def test_where_the_old_header_has_vanished_the_totals_are_told(project: Project, stub: FakeHub) -> None:
    uploaded(stub, calibrated("a", 0, 0, 0))
    project.lock(prove=False)
    stub.repository("o/m").squash()
    later = uploaded(stub, calibrated("a", 1, 0, 1), "Fix it")
    assert project.resolve(prove=False).notes[-1] == (
        f"model A: upstream commit `{later[:7]}` of 2026-01-03 (`Fix it`) changed it: recipe by type differs; "
        "tokenizer, template, metadata identical; at least 2 of 3 tensors have another type"
    )


def test_a_file_that_is_no_model_any_more_is_told(project: Project, stub: FakeHub) -> None:
    (said,) = reuploaded(project, stub, weights(), b"<html>" + PADDING)
    assert said.startswith("its header cannot be compared: ")


def test_a_branch_that_moved_elsewhere_changes_nothing(project: Project, stub: FakeHub) -> None:
    first = uploaded(stub, weights())
    project.lock(prove=False)
    later = stub.repository("o/m").commit({"README.md": b"# M"})
    stub.seen.clear()
    assert project.resolve(prove=False).notes == (
        f"`main` of `o/m` has moved from `{first[:7]}` to `{later[:7]}`: nothing that is pinned has changed there",
    )
    assert len(stub.seen) == 3


def test_a_commit_that_vanished_is_a_note(project: Project, stub: FakeHub) -> None:
    first = uploaded(stub, weights())
    project.lock(prove=False)
    stub.repository("o/m").squash()
    later = stub.repository("o/m").commits[-1].id
    resolved = project.resolve(prove=False)
    assert resolved.state == "same"
    assert resolved.notes == (
        f"`main` of `o/m` has moved from `{first[:7]}` to `{later[:7]}`: nothing that is pinned has changed there",
        (
            f"commit `{first}` of repository `o/m` has vanished upstream; "
            "files that are here and as locked can still be run"
        ),
    )


def test_a_pin_by_commit_follows_nothing(project: Project, stub: FakeHub) -> None:
    first = uploaded(stub, weights())
    project.models = {"A": f"hub:o/m:Q4_K_M@{first}"}
    project.write_spec()
    project.lock(prove=False)
    uploaded(stub, weights(2))
    stub.seen.clear()
    assert (project.resolve(prove=False).notes, stub.seen) == ((), [])


@pytest.mark.parametrize(
    "break_it, why",
    [
        (
            lambda stub: stub.repositories.clear(),
            "there is no repository `o/m` on the Hub, or it is private",
        ),
        (
            lambda stub: stub.renamed.update({"o/m": "o/new"}) or stub.repository("o/new").commit({}),
            "repository `o/m` has been renamed to `o/new`",
        ),
        (
            lambda stub: setattr(stub.trouble, "always", (429, {"Retry_After": "3600"})),
            "the Hub asks to wait 3600 s: too many requests (429); at most 120 s are waited",
        ),
    ],
    ids=["gone", "renamed", "busy"],
)
def test_a_hub_that_cannot_be_asked_keeps_every_pin(
    project: Project, stub: FakeHub, break_it: Callable[[FakeHub], object], why: str
) -> None:
    uploaded(stub, weights())
    before = project.lock(prove=False)
    break_it(stub)
    after = project.resolve(prove=False)
    assert after.data == before.data
    assert after.notes == (f"not asked whether `o/m` moved, all pins are kept: {why}",)


def test_only_the_first_changes_are_looked_at(project: Project, stub: FakeHub) -> None:
    names = [f"Q{number}_0" for number in range(MOST_TOLD + 2)]
    stub.repository("o/m").commit({f"m-{name}.gguf": weights(1) for name in names})
    project.models = {name: f"hub:o/m:{name}" for name in names}
    project.write_spec()
    project.lock(prove=False)
    stub.repository("o/m").commit({f"m-{name}.gguf": weights(2) for name in names})
    notes = project.resolve(prove=False).notes
    assert len(notes) == 1 + MOST_TOLD
    assert "what is pinned stays, `--upgrade NAME` lets it move" in notes[0]


# A file that is not as locked


def test_a_swapped_file_is_refused_with_what_upstream_did(project: Project, stub: FakeHub) -> None:
    path = fetched(project, uploaded(stub, weights()))
    project.lock()
    later = uploaded(stub, weights(template=FIXED), "Fix template")
    path.unlink()
    path.write_bytes(weights(template=FIXED))
    ran = project.run()
    assert ran.state == "refused"
    assert {finding.why for finding in ran.findings} == {
        (
            "template differs; tensors, tokenizer, metadata identical; "
            f"upstream commit `{later[:7]}` of 2026-01-02 (`Fix template`) changed it: "
            "template differs; recipe, tokenizer, metadata identical; the bytes of the tensors were not compared"
        )
    }
    assert all("corrupt" not in finding.why for finding in ran.findings)


def test_a_swapped_file_that_upstream_still_has_is_no_change_of_theirs(
    project: Project, stub: FakeHub
) -> None:
    path = fetched(project, uploaded(stub, weights()))
    project.lock()
    path.unlink()
    path.write_bytes(weights(7))
    (why,) = {finding.why for finding in project.run().findings}
    assert why == (
        "tensors differ; tokenizer, template, metadata identical; upstream: `main` still has the same file"
    )


def test_an_absent_file_whose_commit_vanished_says_so(project: Project, stub: FakeHub) -> None:
    first = uploaded(stub, weights())
    path = fetched(project, first)
    project.lock()
    stub.repository("o/m").squash()
    assert project.run().state == "sealed"
    path.unlink()
    ran = project.run(repeat_lock=True)
    assert ran.state == "absent"
    assert [finding.why for finding in ran.findings] == [
        f"no file of this name was found; commit `{first}` of repository `o/m` has vanished upstream"
    ]


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_nothing_is_asked_about_a_swapped_file(project: Project, stub: FakeHub, name: str) -> None:
    path = fetched(project, uploaded(stub, weights()))
    project.lock()
    path.unlink()
    path.write_bytes(weights(7))
    project.connect(stub, **{name: "1"})
    stub.seen.clear()
    (why,) = {finding.why for finding in project.run().findings}
    assert (why, stub.seen) == ("tensors differ; tokenizer, template, metadata identical", [])
