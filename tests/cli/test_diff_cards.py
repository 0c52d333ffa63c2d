"""`qlock diff` of two sealed runs on cards that are easily taken for one another: the real pynvml on a scripted library.

The figures of the two runs are equal, since one engine in memory answers for every card: the devices alone are refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Type
from tests.fakes.nvml import A100_40, A100_80, H100_PCIE, H100_SXM, SLICES, StubbedNvml, script
from tests.fakes.project import Project
from tests.flows.test_device_runs import lock_here, on_gpu

_TABLE = 'kind = "gpu"\n'
A100_40_PCIE = A100_40.replace("A100-SXM4-40GB", "A100-PCIE-40GB").replace("0x20b010de", "0x20f110de")
A100_80_PCIE = A100_80.replace("A100-SXM4-80GB", "A100 80GB PCIe").replace("0x20b210de", "0x20b510de")
SLICED = A100_40 + SLICES
WHOLE = "NVIDIA A100-SXM4-40GB"
SMALL, LARGE = f"{WHOLE} MIG 1g.5gb", f"{WHOLE} MIG 3g.20gb"


@pytest.fixture
def project(tmp_path: Path, nvml_library: Path) -> Project:
    """A project on the card of the first of two runs."""
    return on_gpu(tmp_path, StubbedNvml(nvml_library, script(A100_40)))


def a_run(project: Project, card: str, gpu_name: str) -> str:
    """A sealed run on a card, or on the slice of it that the spec names."""
    assert isinstance(project.world.nvml, StubbedNvml)
    project.world.nvml.script = script(card)
    spec = project.path / "specs/small.toml"
    named = f'{_TABLE}gpu_name = "{gpu_name}"\n' if gpu_name else _TABLE
    project.write("specs/small.toml", f"{spec.read_text().partition(_TABLE)[0]}{named}")
    ran = project.run(lock_path=lock_here(project))
    assert ran.folder is not None
    return ran.folder.relative_to(project.path).as_posix()


@pytest.mark.parametrize(
    "first, second, differ",
    [
        (
            (A100_40, ""),
            (A100_80, ""),
            [
                "gpu_name: A has `NVIDIA A100-SXM4-40GB`, B has `NVIDIA A100-SXM4-80GB`",
                "pci_device_id: A has `10de:20b0`, B has `10de:20b2`",
                "memory_bytes: A has `42949672960`, B has `85899345920`",
            ],
        ),
        (
            (A100_40_PCIE, ""),
            (A100_80_PCIE, ""),
            [
                "gpu_name: A has `NVIDIA A100-PCIE-40GB`, B has `NVIDIA A100 80GB PCIe`",
                "pci_device_id: A has `10de:20f1`, B has `10de:20b5`",
                "memory_bytes: A has `42949672960`, B has `85899345920`",
            ],
        ),
        (
            (A100_40, ""),
            (A100_40_PCIE, ""),
            [
                "gpu_name: A has `NVIDIA A100-SXM4-40GB`, B has `NVIDIA A100-PCIE-40GB`",
                "pci_device_id: A has `10de:20b0`, B has `10de:20f1`",
            ],
        ),
        (
            (H100_PCIE, ""),
            (H100_SXM, ""),
            [
                "gpu_name: A has `NVIDIA H100 PCIe`, B has `NVIDIA H100 80GB HBM3`",
                "pci_device_id: A has `10de:2331`, B has `10de:2330`",
                "sm_count: A has `114`, B has `132`",
            ],
        ),
        (
            (A100_40, WHOLE),
            (SLICED, LARGE),
            [
                "memory_bytes: A has `42949672960`, B has `20937965568`",
                "sm_count: A has `108`, B has `42`",
                "mig_profile: A has nothing, B has `3g.20gb`",
            ],
        ),
        (
            (SLICED, SMALL),
            (SLICED, LARGE),
            [
                "memory_bytes: A has `5100273664`, B has `20937965568`",
                "sm_count: A has `14`, B has `42`",
                "mig_profile: A has `1g.5gb`, B has `3g.20gb`",
            ],
        ),
    ],
    ids=["A100 SXM", "A100 PCIe", "SXM and PCIe", "H100", "card and slice", "slices"],
)
def test_cards_of_nearly_one_name_are_not_compared(
    project: Project, typed: Type, first: tuple[str, str], second: tuple[str, str], differ: list[str]
) -> None:
    a, b = a_run(project, *first), a_run(project, *second)
    said = typed("diff", f"{a}:A@plain", f"{b}:A@plain")
    fatal = [f"fatal: device.gpu.0.{one}" for one in differ]
    # Both points are of one name, so the runs tell them apart.
    sides = {"A": f"{a.removeprefix('runs/')}:A@plain", "B": f"{b.removeprefix('runs/')}:A@plain"}
    assert said.code == 4
    assert said.talk == [
        f"error: {sides['B']} against {sides['A']}: invalid: {fatal[0]} (and {len(fatal) - 1} more)",
        "hint: compare points of one device, or describe the way with a point that was run on both: --bridge POINT",
    ]
    lines = said.out.split("\n")
    assert lines[0] == f"INVALID: {sides['B']} (B) against {sides['A']} (A); meant to differ: weights"
    assert [line.strip() for line in lines if line.startswith("  fatal: ")] == fatal
    assert "  no verdict: the comparison is invalid, so this is a description only" in lines


def test_a_card_is_compared_with_another_of_its_kind(project: Project, typed: Type) -> None:
    other = A100_40.replace("a1000040", "a1000041").replace("00:07", "00:0F")
    one = a_run(project, A100_40, "")
    assert isinstance(project.world.nvml, StubbedNvml)
    project.world.nvml.script = script(other)
    again = project.run(
        repeat_lock=True, lock_path=project.path / "locks/small@gpu-nvidia-a100-sxm4-40gb.toml"
    )
    assert again.folder is not None
    said = typed("diff", f"{one}:A@plain", f"{again.folder.relative_to(project.path)}:B@plain")
    assert (said.code, said.talk) == (0, [])
    assert said.out.startswith("VALID: B@plain (B) against A@plain (A); meant to differ: weights\n")
