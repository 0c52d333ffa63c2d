"""Every line about a machine, there or not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from msgspec import UNSET

from qlock import __version__
from qlock.core.facts import Device
from qlock.errors import AbsentError
from qlock.flows.doctor import Health, Row, doctor
from qlock.world.interface import MappedFile, Missing, World
from tests.fakes.engine import Script
from tests.fakes.llama_server import build
from tests.fakes.world import L4, FixedHost, ScriptedAmd, ScriptedMaps, ScriptedNvml, fake_world, seen


class BlindHost(FixedHost):
    """A host that cannot see its CPU."""

    def device(self, name: str = "") -> NoReturn:
        raise AbsentError("list of CPUs `/proc/cpuinfo` is not there")


def machine(place: Path) -> World:
    mapped = MappedFile(path="/lib/libc.so", device="8:1", inode=1, deleted=False)
    return msgspec.structs.replace(fake_world(place), maps=ScriptedMaps({os.getpid(): (mapped,)}))


def look(place: Path, world: World | None = None) -> Health:
    return doctor(world or machine(place), Script(place / "engine").open_engine)


def row(health: Health, what: str) -> Row:
    return next(row for row in health.rows if row.what == what)


def test_a_machine_that_has_what_a_run_needs(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp.llama_cpp", reason="llama-cpp-python is not installed")
    health = look(tmp_path)
    assert health.is_fit
    assert row(health, "qlock").says == __version__
    assert row(health, "python").says == "3.11.9"
    assert row(health, "/proc").says == "readable, 1 file mapped here"
    assert row(health, "cpu").says == "AMD EPYC, 2 cores, 5 instruction sets (cpu-amd-1a-02)"
    assert row(health, "cpu").more == "avx avx2 avx512f f16c fma"
    assert row(health, "memory").says == "12.9 GB of 17.2 GB available (machine)"
    assert row(health, "engine").says == "starts: b6000 (fake)"
    assert row(health, "engine").more == "CPU : FAKE = 1"


def test_the_engine_is_ended_again(tmp_path: Path) -> None:
    script = Script(tmp_path / "engine")
    doctor(machine(tmp_path), script.open_engine)
    assert (script.opened, script.closed) == (1, 1)
    assert script.loads == []


def test_an_engine_that_does_not_start_makes_it_unfit(tmp_path: Path) -> None:
    script = Script(tmp_path / "engine")
    script.start_error = "the engine did not start: no libllama.so"
    health = doctor(machine(tmp_path), script.open_engine)
    assert not health.is_fit
    assert row(health, "engine") == Row(
        what="engine",
        state="absent",
        says="the engine did not start: no libllama.so",
        is_needed=True,
        hint="reinstall llama-cpp-python for this machine",
    )


def test_a_cpu_that_cannot_be_seen_makes_it_unfit(tmp_path: Path) -> None:
    health = look(tmp_path, msgspec.structs.replace(machine(tmp_path), host=BlindHost()))
    assert not health.is_fit
    assert row(health, "cpu").says == "list of CPUs `/proc/cpuinfo` is not there"


def test_maps_that_cannot_be_read_make_it_unfit(tmp_path: Path) -> None:
    health = look(tmp_path, fake_world(tmp_path))
    assert not health.is_fit
    assert row(health, "/proc").hint == "mount /proc; what an engine has loaded is read there"


def test_no_gpu_is_said_with_the_reason_and_is_no_need(tmp_path: Path) -> None:
    found = row(look(tmp_path), "gpu")
    assert (found.state, found.is_needed) == ("absent", False)
    assert found.says == "the NVML library of the NVIDIA driver is not installed"


@pytest.mark.parametrize(
    "answer, says",
    [
        ((), "the driver shows no card"),
        (
            AbsentError("the NVIDIA driver does not answer: Unknown Error"),
            "the NVIDIA driver does not answer: Unknown Error",
        ),
    ],
)
def test_a_driver_without_cards_or_answers_is_said(
    tmp_path: Path, answer: tuple[()] | AbsentError, says: str
) -> None:
    found = row(look(tmp_path, msgspec.structs.replace(machine(tmp_path), nvml=ScriptedNvml(answer))), "gpu")
    assert (found.state, found.says) == ("absent", says)


def test_each_card_has_a_line(tmp_path: Path) -> None:
    one, two = seen(L4, L4)
    cards = (one, msgspec.structs.replace(two, gpu=Missing(why="GPU `1` does not tell its memory")))
    health = look(tmp_path, msgspec.structs.replace(machine(tmp_path), nvml=ScriptedNvml(cards)))
    assert row(health, "gpu 0").says == (
        "NVIDIA L4, 10de:27b8 at 00000000:01:00.0, compute capability 8.9, driver 550.54.15, 24.2 GB, "
        "58 multiprocessors, ECC on, power limit 72 W, CUDA 12.4"
    )
    assert (row(health, "gpu 1").state, row(health, "gpu 1").says) == (
        "absent",
        "GPU `1` does not tell its memory",
    )


def test_a_slice_and_what_a_card_does_not_tell_are_said(tmp_path: Path) -> None:
    part = msgspec.structs.replace(L4, mig_profile="1g.5gb", ecc=UNSET, power_limit_mw=UNSET)
    health = look(tmp_path, msgspec.structs.replace(machine(tmp_path), nvml=ScriptedNvml(seen(part))))
    assert row(health, "gpu 0").says == (
        "NVIDIA L4 1g.5gb, 10de:27b8 at 00000000:01:00.0, compute capability 8.9, driver 550.54.15, 24.2 GB, "
        "58 multiprocessors, ECC missing (the card does not tell it), "
        "power limit missing (the card does not tell it), CUDA 12.4"
    )


def test_cards_of_amd_are_told_where_their_driver_is_loaded(tmp_path: Path) -> None:
    card = msgspec.structs.replace(
        L4,
        gpu_name="AMD INSTINCT MI210",
        pci_device_id="1002:740f",
        compute_capability="gfx90a",
        cuda_version=UNSET,
    )
    amd = ScriptedAmd(seen(card, driver_version="amdgpu 6.7.0"))
    health = look(tmp_path, msgspec.structs.replace(machine(tmp_path), amd=amd))
    assert row(health, "gpu").says == "the NVML library of the NVIDIA driver is not installed"
    assert row(health, "gpu amd 0").says == (
        "AMD INSTINCT MI210, 1002:740f at 00000000:01:00.0, compute capability gfx90a, driver amdgpu 6.7.0, "
        "24.2 GB, 58 multiprocessors, ECC on, power limit 72 W, CUDA version missing (the card does not tell it)"
    )


def test_the_cache_is_weighed(tmp_path: Path) -> None:
    world = machine(tmp_path)
    assert (
        f"{world.cache_folder}, not made yet; {tmp_path}, " in row(look(tmp_path, world), "cache folder").says
    )
    world.cache_folder.mkdir(parents=True)
    (world.cache_folder / "digests").write_bytes(b"x" * 1500)
    says = row(look(tmp_path, world), "cache folder").says
    assert says.startswith(f"{world.cache_folder}, ")
    assert says.endswith(" free, 1 file of 1.5 kB in it")


def test_a_file_that_leaves_the_cache_meanwhile_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = machine(tmp_path)
    world.cache_folder.mkdir(parents=True)
    monkeypatch.setattr(os, "walk", lambda top: [(str(top), [], ["renamed.part"])])
    assert row(look(tmp_path, world), "cache folder").says.endswith(" free, 0 files of 0 B in it")


def test_nothing_is_said_of_what_qlock_does_not_use(tmp_path: Path) -> None:
    told = {one.what.partition(":")[0] for one in look(tmp_path).rows}
    assert told & {"sandbox", "slurm"} == set()


def test_what_is_not_needed_does_not_make_a_machine_unfit() -> None:
    absent = Row(what="gpu", state="absent", says="", is_needed=False)
    assert Health(rows=(absent,)).is_fit
    assert not Health(rows=(absent, msgspec.structs.replace(absent, is_needed=True))).is_fit


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "work")
    health = look(tmp_path)
    assert row(health, "current folder").says == f"`{tmp_path}/work` may not be written"
    assert not health.is_fit


def test_device_is_the_one_that_a_lock_would_name(tmp_path: Path) -> None:
    device: Device = machine(tmp_path).host.device()
    assert row(look(tmp_path), "cpu").says.endswith(f"({device.name})")


def with_build(place: Path, **behaviour: object) -> Health:
    """What is said of a machine and of a build that plays a part."""
    return doctor(
        machine(place),
        Script(place / "engine").open_engine,
        build=build(place / "build", **behaviour),
    )


def test_a_build_is_looked_at_and_the_embedded_engine_is_not_needed(tmp_path: Path) -> None:
    health = with_build(tmp_path, devices=["CUDA0", "SYCL0"])
    assert row(health, "build: llama-server").says == f"{tmp_path}/build/llama-server"
    assert (row(health, "build: llama-perplexity").state, row(health, "build: llama-perplexity").says) == (
        "absent",
        f"got no program `llama-perplexity` in `{tmp_path}/build`",
    )
    assert row(health, "build: version").says == "llama.cpp 9333 (35c9b1f39)"
    assert row(health, "build: options").says.endswith(", each of them known")
    assert row(health, "build: CUDA0").says == (
        "a card, 81559 MiB, 80947 MiB free; through CUDA; llama.cpp tells its PCI address when it loads a model,"
        " and qlock holds it against the card, if it is one of NVIDIA's or AMD's"
    )
    assert row(health, "build: SYCL0").says == (
        "a card, 81559 MiB, 80947 MiB free; through SYCL; cannot be locked: llama.cpp tells no PCI address of it"
    )
    scoring = row(health, "build: scoring")
    assert (scoring.state, scoring.is_needed) == ("absent", False)
    assert scoring.says.startswith("not by llama-cpp-python (`python")
    assert scoring.says.endswith("); by llama-perplexity where the work fits it, else token by token")
    assert not row(health, "engine").is_needed
    assert not row(health, "llama-cpp-python").is_needed
    assert health.is_fit


def test_a_build_without_devices_computes_on_the_cpu(tmp_path: Path) -> None:
    assert row(with_build(tmp_path), "build: devices").says == "none besides the CPU"


def test_a_build_with_an_option_that_nobody_has_looked_at_is_unfit(tmp_path: Path) -> None:
    health = with_build(tmp_path, unknown_option="--turbo")
    assert row(health, "build: options") == Row(
        what="build: options",
        state="absent",
        says="the build has an option that qlock does not know: `--turbo`",
        is_needed=True,
        hint="use a build of llama.cpp that this version of qlock knows",
    )
    assert not health.is_fit


def test_a_folder_that_is_no_build_is_unfit(tmp_path: Path) -> None:
    health = doctor(machine(tmp_path), Script(tmp_path / "engine").open_engine, build=tmp_path)
    assert not health.is_fit
    assert row(health, "build: llama-server").says == f"got no program `llama-server` in `{tmp_path}`"
    assert [one.what for one in health.rows if one.what.startswith("build")] == [
        "build: llama-server",
        "build: llama-perplexity",
    ]
