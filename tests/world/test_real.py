"""The real world is put together from the environment as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.world.real import cache_folder, real_world


def test_the_environment_is_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QLOCK_MODELS", "/models")
    world = real_world()
    monkeypatch.setenv("QLOCK_MODELS", "/others")
    assert world.environment["QLOCK_MODELS"] == "/models"
    with pytest.raises(TypeError):
        world.environment["QLOCK_MODELS"] = "/mine"  # type: ignore[index]  # that it cannot be set is what is tested


def test_it_works_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert real_world().cwd == tmp_path


def test_a_current_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(AbsentError) as caught:
        real_world()
    assert str(caught.value) == "the current folder is not there any more"
    assert caught.value.hint == "change to a folder that is"


@pytest.mark.parametrize(
    "environment, wanted",
    [
        ({"QLOCK_CACHE": "/fast", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/ada"}, "/fast/qlock"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/ada"}, "/xdg/qlock"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/ada"}, "/home/ada/.cache/qlock"),
        ({"QLOCK_CACHE": "", "HOME": "/home/ada"}, "/home/ada/.cache/qlock"),
    ],
)
def test_the_cache_lies_where_it_is_asked_for(environment: dict[str, str], wanted: str) -> None:
    assert cache_folder(environment) == Path(wanted)


def test_a_relative_cache_is_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cache_folder({"QLOCK_CACHE": "cache"}) == tmp_path / "cache" / "qlock"


def test_without_a_home_the_user_still_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_folder({}) == Path("/home/ada/.cache/qlock")
