"""The texts of many machines, and the one that the tests run on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import AbsentError
from qlock.world.host import INSTRUCTION_SETS, Cpu, cpu_of, device, meminfo_of, memory, surroundings
from qlock.world.interface import Memory

ARM_HINT = "qlock knows x86-64 and 64-bit Arm under Linux"

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC 9755 128-Core Processor
stepping\t: 1
flags\t\t: fpu vme sse sse2 pni ssse3 fma sse4_1 sse4_2 avx f16c avx2 bmi2 avx512f avx512dq avx512cd avx512bw avx512vl avx_vnni avx512_bf16 avx512vbmi avx512_vnni
bugs\t\t: sysret_ss_attrs
power management:

"""
# A hybrid core that runs without AVX-512, and one whose kernel was told to hide AVX-VNNI.
INTEL_HYBRID = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 151
model name\t: 12th Gen Intel(R) Core(TM)  i9-12900K
stepping\t: 2
flags\t\t: pni ssse3 avx avx2 fma f16c bmi2 avx_vnni hybrid_cpu

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 151
model name\t: 12th Gen Intel(R) Core(TM)  i9-12900K
stepping\t: 2
flags\t\t: pni ssse3 avx avx2 fma f16c bmi2 hybrid_cpu

"""
SAPPHIRE = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
stepping\t: unknown
flags\t\t: avx2 avx512f amx_bf16 avx512_fp16 amx_tile amx_int8

"""
GRACE = """processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd evtstrm aes fphp asimdhp cpuid asimddp sve asimdfhm sve2 i8mm svei8mm bf16 svebf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd4f
CPU revision\t: 1

"""
BIG_LITTLE = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd05
CPU revision\t: 0

processor\t: 1
Features\t: fp asimd asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0b
CPU revision\t: 2

Hardware\t: BCM2835
"""


def rooted(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


class TestCpu:
    @pytest.mark.parametrize(
        "text, name, model, stepping",
        [
            (EPYC, "cpu-amd-1a-02", "AMD EPYC 9755 128-Core Processor", 1),
            (INTEL_HYBRID, "cpu-intel-06-97", "12th Gen Intel(R) Core(TM) i9-12900K", 2),
            (SAPPHIRE, "cpu-intel-06-8f", "Intel(R) Xeon(R) Platinum 8480+", 0),
            (GRACE, "cpu-arm-08-d4f", "arm part 0xd4f", 1),
            (BIG_LITTLE, "cpu-arm-08-d0b", "arm part 0xd05 + arm part 0xd0b", 0x32),
            (
                EPYC.replace("AuthenticAMD", "HygonGenuine"),
                "cpu-hygon-1a-02",
                "AMD EPYC 9755 128-Core Processor",
                1,
            ),
            (
                EPYC.replace("AuthenticAMD", "New Maker!"),
                "cpu-newmaker-1a-02",
                "AMD EPYC 9755 128-Core Processor",
                1,
            ),
            (GRACE.replace("0x41", "0x7f"), "cpu-implementer7f-08-d4f", "implementer7f part 0xd4f", 1),
            (
                GRACE.replace("0x41", "0x61").replace("0xd4f", "0x022"),
                "cpu-apple-08-22",
                "apple part 0x022",
                1,
            ),
        ],
    )
    def test_names(self, tmp_path: Path, text: str, name: str, model: str, stepping: int) -> None:
        seen = device(root=rooted(tmp_path, {"proc/cpuinfo": text}))
        assert (seen.name, seen.cpu_model, seen.cpu_stepping) == (name, model, stepping)

    def test_all_of_one_machine(self) -> None:
        assert cpu_of(GRACE) == Cpu(
            vendor="arm",
            model="arm part 0xd4f",
            family=8,
            model_number=0xD4F,
            stepping=1,
            instruction_sets=(
                "asimd",
                "asimddp",
                "asimdfhm",
                "asimdhp",
                "bf16",
                "fphp",
                "i8mm",
                "sve",
                "sve2",
                "svebf16",
                "svei8mm",
            ),
        )

    def test_only_what_kernels_exist_for(self) -> None:
        assert cpu_of(SAPPHIRE).instruction_sets == (
            "amx_bf16",
            "amx_int8",
            "amx_tile",
            "avx2",
            "avx512_fp16",
            "avx512f",
        )

    def test_what_not_all_cores_have_does_not_count(self) -> None:
        assert "avx_vnni" not in cpu_of(INTEL_HYBRID).instruction_sets
        assert cpu_of(BIG_LITTLE).instruction_sets == ("asimd",)

    def test_the_order_of_cores_does_not_count(self) -> None:
        first, second, _ = BIG_LITTLE.split("\n\n")
        assert cpu_of(f"{second}\n\n{first}\n") == cpu_of(BIG_LITTLE)

    @pytest.mark.parametrize(
        "text, why",
        [
            ("", "got no processor"),
            ("Hardware : board\n", "got no processor"),
            ("processor : 0\n", "got `` as `CPU implementer`, expected a number"),
            (EPYC.replace(": 26", ": new"), "got `new` as `cpu family`, expected a number"),
            (EPYC.replace("stepping\t: 1", "stepping\t: x"), "got `x` as `stepping`, expected a number"),
            (GRACE.replace("0xd4f", "-1"), "got `-1` as `CPU part`, expected a number"),
            # POWER: another architecture.
            ("processor : 0\ncpu : POWER9\n", "got `` as `CPU implementer`, expected a number"),
        ],
    )
    def test_what_is_not_known_is_said(self, text: str, why: str) -> None:
        with pytest.raises(AbsentError) as caught:
            cpu_of(text)
        assert str(caught.value) == f"the CPU cannot be told from `/proc/cpuinfo`: {why}"
        assert caught.value.hint == ARM_HINT

    @given(text=st.text(alphabet="processor vendor_id:0x1\n\tflags model", max_size=200))
    def test_any_text_gives_a_cpu_or_our_error(self, text: str) -> None:
        try:
            cpu = cpu_of(text)
        except AbsentError:
            return
        assert set(cpu.instruction_sets) <= INSTRUCTION_SETS

    def test_this_machine(self) -> None:
        seen = device("mine")
        assert (seen.name, seen.kind, seen.gpu, seen.driver_version) == ("mine", "cpu", (), "")
        assert seen.cores == len(os.sched_getaffinity(0))
        assert seen.instruction_sets


MEMINFO = "MemTotal:       32768 kB\nMemFree:         1 kB\nMemAvailable:   16384 kB\n"
MACHINE = Memory(total_bytes=32 << 20, available_bytes=16 << 20, limited_by="machine")


def group(place: str, limit: object, used: int, cached: int) -> dict[str, str]:
    return {
        f"sys/fs/cgroup/{place}memory.max": f"{limit}\n",
        f"sys/fs/cgroup/{place}memory.current": f"{used}\n",
        f"sys/fs/cgroup/{place}memory.stat": f"anon 5\ninactive_file {cached}\nactive_file 0\nfile_mapped 7\n",
    }


class TestMemory:
    @pytest.mark.parametrize(
        "files, wanted",
        [
            ({}, MACHINE),
            ({"proc/self/cgroup": "0::/\n"}, MACHINE),
            ({"proc/self/cgroup": "0::/job/step\n", **group("job/", "max", 1 << 20, 0)}, MACHINE),
            (
                {"proc/self/cgroup": "0::/job/step\n", **group("job/", 8 << 20, 3 << 20, 1 << 20)},
                Memory(total_bytes=8 << 20, available_bytes=6 << 20, limited_by="control group /job"),
            ),
            (
                {
                    "proc/self/cgroup": "0::/job/step\n",
                    **group("job/", 8 << 20, 7 << 20, 0),
                    **group("job/step/", 4 << 20, 0, 0),
                },
                Memory(total_bytes=4 << 20, available_bytes=1 << 20, limited_by="control group /job"),
            ),
            # A container: the path is the host's, the top is its own.
            (
                {"proc/self/cgroup": "0::/docker/abc\n", **group("", 2 << 20, 0, 0)},
                Memory(total_bytes=2 << 20, available_bytes=2 << 20, limited_by="control group /"),
            ),
            # Used beyond its limit, for a moment.
            (
                {"proc/self/cgroup": "0::/job\n", **group("job/", 2 << 20, 3 << 20, 0)},
                Memory(total_bytes=2 << 20, available_bytes=0, limited_by="control group /job"),
            ),
            # A limit above the machine's memory limits nothing.
            ({"proc/self/cgroup": "0::/job\n", **group("job/", 64 << 20, 63 << 20, 0)}, MACHINE),
            # Version 1.
            (
                {
                    "proc/self/cgroup": "5:cpu,memory:/slurm/job_1\n3:pids:/slurm\n",
                    "sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes": str(8 << 20),
                    "sys/fs/cgroup/memory/slurm/job_1/memory.usage_in_bytes": str(5 << 20),
                    "sys/fs/cgroup/memory/slurm/job_1/memory.stat": f"cache 1\ntotal_inactive_file {1 << 20}\n",
                    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                },
                Memory(
                    total_bytes=8 << 20,
                    available_bytes=4 << 20,
                    limited_by="control group /memory/slurm/job_1",
                ),
            ),
        ],
    )
    def test_the_machine_or_what_a_group_allows(
        self, tmp_path: Path, files: dict[str, str], wanted: Memory
    ) -> None:
        assert memory(root=rooted(tmp_path, {"proc/meminfo": MEMINFO, **files})) == wanted

    @pytest.mark.parametrize(
        "text", ["", "MemTotal: 5 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal:\nMemAvailable:\n"]
    )
    def test_a_text_that_does_not_say_it(self, text: str) -> None:
        with pytest.raises(AbsentError) as caught:
            meminfo_of(text)
        assert str(caught.value) == "`/proc/meminfo` does not say how much memory there is"

    def test_this_machine(self) -> None:
        seen = memory()
        assert 0 < seen.available_bytes <= seen.total_bytes


def test_surroundings_of_this_machine() -> None:
    seen = surroundings()
    assert (seen.host_name, seen.kernel) == (os.uname().nodename, f"Linux {os.uname().release}")
    assert len(seen.boot_id) == 36
