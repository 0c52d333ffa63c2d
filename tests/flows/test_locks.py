"""Locks that another qlock wrote: told by file and key, with what to do, wherever a lock is read."""

from __future__ import annotations

import pytest

from qlock.errors import InputError
from qlock.flows.locks import read_lock_file
from tests.broken.make import sealed
from tests.fakes.project import Project


def refusal(project: Project, old: str, new: str) -> tuple[str, str]:
    """What reading says of a lock that some qlock wrote with ``new`` where ours writes ``old``."""
    data = project.lock_path.read_bytes()
    assert data.count(old.encode()) == 1
    project.lock_path.write_bytes(sealed(data.replace(old.encode(), new.encode())))
    with pytest.raises(InputError) as caught:
        read_lock_file(project.world, project.lock_path)
    return str(caught.value), caught.value.hint


RENEWED = "another qlock wrote it: renew it with `qlock resolve specs/small.toml`"
ANEW = "another qlock wrote it: make it anew with `qlock resolve --upgrade all specs/small.toml`"


@pytest.mark.parametrize(
    "old, new, message, hint",
    [
        ("replicas = 1\n", "", "setting[0]: the key `replicas` is missing", ANEW),
        ("cut = true\n", "", "suite[0].params.thinking: the key `cut` is missing", RENEWED),
        ("cut = true\n", "cut = true\ncute = 1\n", "suite[0].params.thinking: unknown key `cute`", RENEWED),
        (
            'kind = "tasks"\n',
            'kind = "riddles"\n',
            "suite[0].kind: got `riddles`, expected a known suite kind: kld, perplexity, tasks",
            RENEWED,
        ),
    ],
)
def test_what_another_qlock_wrote_is_named(
    project: Project, old: str, new: str, message: str, hint: str
) -> None:
    assert refusal(project, old, new) == (f"small@cpu-amd-1a-02.toml: {message}", hint)


def test_what_is_said_to_be_done_helps(project: Project) -> None:
    fresh = project.lock_path.read_bytes()
    refusal(project, "cut = true\n", "")
    project.lock()
    assert project.lock_path.read_bytes() == fresh
    refusal(project, "replicas = 1\n", "")
    project.lock(upgrade=("all",))
    assert project.lock_path.read_bytes() == fresh


def test_a_folder_is_no_lock(project: Project) -> None:
    with pytest.raises(InputError) as caught:
        read_lock_file(project.world, project.path / "locks")
    assert str(caught.value) == "got the folder `locks`, expected a lock file"
