"""The folder and the environment of an engine's processes."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from qlock.engines.llama_cpp.home import SYSTEM_OPTIONS, Home
from qlock.errors import AbsentError, EngineError
from tests.engines.llama_cpp.conftest import NOWHERE, Opener, load_of


def test_options_of_the_system_are_refused(tmp_path: Path, temporary: Path) -> None:
    options = tmp_path / "config.ini"
    options.write_text("flash-attn = off\n")
    with pytest.raises(EngineError) as caught:
        Home(variables={}, system_options=options)
    assert (caught.value.message, caught.value.hint) == (
        f"`{options}` sets options of llama.cpp that no lock knows",
        f"remove `{options}`, or measure where it is not",
    )
    assert list(temporary.iterdir()) == []
    assert Path("/etc/llama.cpp/config.ini") == SYSTEM_OPTIONS


def test_only_this_user_can_enter_and_nothing_is_left(temporary: Path) -> None:
    home = Home(variables={}, system_options=NOWHERE)
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert home.folder.name.startswith("qlock-llama-")
    assert {path.name for path in home.folder.iterdir()} == {"owner.json", "work", "home"}
    assert stat.S_IMODE(home.server_folder().stat().st_mode) == 0o700
    assert home.server_folder() != home.server_folder()
    home.close()
    home.close()
    assert list(temporary.iterdir()) == []


def test_no_room_for_the_folder_of_a_server(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *rest: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    home = Home(variables={}, system_options=NOWHERE)
    for name in ("mkdir", "touch"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, name, full)
            with pytest.raises(AbsentError) as caught:
                home.server_folder()
        assert str(caught.value) == (
            f"nothing can be put into the temporary folder `{temporary}`: no space left on device"
        )
    home.close()


def test_a_server_inherits_nothing(played: Opener, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_ARG_CTX_SIZE", "GGML_CPU_TILED_MM", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "AIP_MODE"):
        monkeypatch.setenv(name, "1")
    engine = played()
    engine.load(load_of(model))
    seen = Path(f"/proc/{engine.pids[0]}/environ").read_text()
    environment = dict(entry.split("=", 1) for entry in seen.split("\0") if entry)
    home = environment.pop("HOME")
    assert list(Path(home).iterdir()) == []
    assert list(Path(f"/proc/{engine.pids[0]}/cwd").resolve().iterdir()) == []
    assert environment == {
        "XDG_CONFIG_HOME": home,
        "LC_ALL": "C",
        "NO_COLOR": "1",
        "GGML_NO_BACKTRACE": "1",
        "OMP_DYNAMIC": "FALSE",
        "OMP_PROC_BIND": "FALSE",
        "GOMP_SPINCOUNT": "1000",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_the_cards_that_it_sees_are_named() -> None:
    home = Home(variables={"CUDA_VISIBLE_DEVICES": "GPU-1234"}, system_options=NOWHERE)
    assert home.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-1234"
    home.close()


def test_a_server_gets_what_the_spec_names_beside_that(played: Opener, model: Path) -> None:
    engine = played(variables={"GGML_CUDA_DISABLE_GRAPHS": "1"})
    engine.load(load_of(model))
    seen = Path(f"/proc/{engine.pids[0]}/environ").read_text().split("\0")
    assert "GGML_CUDA_DISABLE_GRAPHS=1" in seen
    assert "GOMP_SPINCOUNT=1000" in seen
