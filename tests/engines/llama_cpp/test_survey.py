"""What can be told of a build before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.llama_cpp.survey import Survey, standing
from qlock.engines.llama_cpp.tools import Device
from qlock.errors import AbsentError, RefusedError
from tests.engines.llama_cpp.conftest import NOWHERE
from tests.fakes.llama_server import build


def test_a_build_tells_its_version_options_and_devices(tmp_path: Path, temporary: Path) -> None:
    folder = build(tmp_path / "build", devices=["CUDA0", "Vulkan0"])
    with Survey(folder, system_options=NOWHERE) as survey:
        assert survey.program("llama-server") == f"{folder}/llama-server"
        assert survey.version() == "llama.cpp 9333 (35c9b1f39)"
        assert survey.options() == 57
        assert [device.name for device in survey.devices()] == ["CUDA0", "Vulkan0"]
        with pytest.raises(AbsentError, match=r"^got no program `llama-perplexity` in "):
            survey.program("llama-perplexity")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "behaviour, message",
    [
        ({"unknown_option": "--turbo"}, "the build has an option that qlock does not know: `--turbo`"),
        (
            {"lacks_option": "--special"},
            "the build has no option `--special`, without which nothing can be promised",
        ),
    ],
)
def test_options_that_no_run_could_be_made_with(
    tmp_path: Path, temporary: Path, *, behaviour: dict[str, object], message: str
) -> None:
    with (
        Survey(build(tmp_path / "build", **behaviour), system_options=NOWHERE) as survey,
        pytest.raises(RefusedError) as caught,
    ):
        survey.options()
    assert caught.value.message == message


def test_a_folder_without_libraries_cannot_be_driven(tmp_path: Path, temporary: Path) -> None:
    with Survey(build(tmp_path / "build"), system_options=NOWHERE) as survey:
        assert survey.why_not_by_bindings().startswith("`python")


@pytest.mark.live
def test_a_real_build_can_be_driven(build_bin: Path, temporary: Path) -> None:
    with Survey(build_bin) as survey:
        assert survey.options() > 200
        assert survey.devices() == ()
        assert survey.why_not_by_bindings() == ""


@pytest.mark.parametrize(
    "name, says",
    [
        ("CUDA0", "through CUDA; llama.cpp tells its PCI address when it loads a model, and"),
        ("Vulkan1", "through Vulkan; llama.cpp tells its PCI address when it loads a model, and"),
        ("ROCm0", "through ROCm; llama.cpp tells its PCI address when it loads a model, and"),
        ("MUSA0", "through MUSA; cannot be locked: qlock knows NVIDIA's and AMD's cards alone"),
        ("SYCL0", "through SYCL; cannot be locked: llama.cpp tells no PCI address of it"),
        ("MTL0", "through Metal; cannot be locked: llama.cpp tells no PCI address of it"),
        ("Metal", "through Metal; cannot be locked: llama.cpp tells no PCI address of it"),
        ("RPC0[host:1]", "through another machine (RPC); cannot be locked: it is not this machine's"),
        ("XPU7", "cannot be locked: qlock does not know devices of this name"),
    ],
)
def test_a_device_stands_for_a_backend(name: str, says: str) -> None:
    device = Device(name=name, description="", memory_mib=1, free_mib=1)
    assert standing(device).startswith(says)
