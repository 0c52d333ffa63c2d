"""Locks that another qlock wrote: told by file and key, with what to do, wherever a lock is read."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from qlock.core.canon import MOST_TOML_BYTES
from qlock.errors import InputError
from qlock.flows.locks import lock_bytes, read_lock_file
from qlock.flows.resolve import MOST_SPEC_BYTES
from tests.broken.make import sealed
from tests.fakes.project import Project
from tests.fakes.project import refusal as refused


def refusal(project: Project, old: str, new: str) -> tuple[str, str]:
    """What reading says of a lock that some qlock wrote with ``new`` where ours writes ``old``."""
    data = project.lock_path.read_bytes()
    assert data.count(old.encode()) == 1
    project.lock_path.write_bytes(sealed(data.replace(old.encode(), new.encode())))
    with pytest.raises(InputError) as caught:
        read_lock_file(project.world, project.lock_path)
    return str(caught.value), caught.value.hint


RENEWED = "another qlock wrote it: renew it with `qlock resolve specs/small.toml`"
ANEW = "another qlock wrote it: make it anew with `qlock resolve --upgrade all specs/small.toml`, which may move every pin"


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


def test_a_lock_that_nobody_could_read_is_refused_before_anything_is_loaded(project: Project) -> None:
    # Quotes are escaped in a lock: twice the bytes of a spec that is as large as any may be.
    text = '\n[[anchor]]\nmodel = "A"\nsuite = "digits"\npublished = 0.5\ntolerance = 1.0\nsource = \'{}\'\n'
    project.write_spec(lambda spec: spec + text.format('"' * (MOST_SPEC_BYTES - len((spec + text).encode()))))
    opened = project.script.opened
    message, hint = refused(project, InputError)
    bytes_ = re.fullmatch(
        r"small@cpu-amd-1a-02\.toml: the lock would have `(\d+)` bytes, expected at most `8388608`", message
    )
    assert bytes_
    assert int(bytes_[1]) > MOST_TOML_BYTES
    assert (hint, project.script.opened) == ("split the spec into several", opened)


def test_a_lock_of_as_many_bytes_as_can_be_read_is_written(project: Project) -> None:
    lock, data = read_lock_file(project.world, project.lock_path)

    def written(more: int) -> bytes:
        model = replace(lock.model[0], requested=lock.model[0].requested + "x" * more)
        return lock_bytes(
            replace(lock, model=(model, *lock.model[1:])), spec_path="specs/small.toml", name="x.toml"
        )

    most = MOST_TOML_BYTES - len(data)
    project.lock_path.write_bytes(written(most))
    assert len(read_lock_file(project.world, project.lock_path)[1]) == MOST_TOML_BYTES
    with pytest.raises(InputError) as caught:
        written(most + 1)
    assert str(caught.value) == "x.toml: the lock would have `8388609` bytes, expected at most `8388608`"
