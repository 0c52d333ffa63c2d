"""Maps of made-up and of real processes, and the roles of the files in them."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.facts import EngineRole
from qlock.errors import AbsentError, InputError
from qlock.world import files, maps
from qlock.world.digests import digest_file
from qlock.world.interface import FileDigest, MappedFile
from qlock.world.maps import engine_files, parse_maps, read_maps, role_of
from qlock.world.maps.elf import build_id, code_digest
from tests.fakes.elf import ALLOCATED, EXECUTABLE, header, with_sections

REAL = rb"""
55d0c8a3b000-55d0c8a3c000 r--p 00000000 fe:00 1001                       /opt/llama/bin/llama-server
55d0c8a3c000-55d0c8a3d000 r-xp 00001000 fe:00 1001                       /opt/llama/bin/llama-server
55d0c9000000-55d0c9021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rwxp 00000000 00:00 0
7f1000000000-7f1000100000 r--p 00000000 fe:00 2001                       /models/q4 k m.gguf
7f2000000000-7f2000100000 r-xp 00026000 103:02 3001                      /opt/llama/lib/libggml cpu.so.0
7f2000200000-7f2000300000 r-xp 00126000 103:02 3001                      /opt/llama/lib/libggml cpu.so.0
7f3000000000-7f3000100000 r-xp 00000000 fe:00 4001                       /usr/lib/libm.so.6 (deleted)
7f4000000000-7f4000100000 r-xp 00000000 fe:00 5001                       /tmp/two\012lines.so
7f5000000000-7f5000001000 r-xs 00000000 00:01 6001                       /memfd:jit (deleted)
7f5000002000-7f5000003000 r-xs 00000000 00:05 6002                       /dev/nvidiactl
7f5000004000-7f5000005000 r-xs 00000000 00:05 6003                       /dev/zero (deleted)
7f5000006000-7f5000007000 r-xs 00000000 00:19 6004                       /dev/shm/kernels.so
7f5000008000-7f5000009000 r-xp 00000000 00:01 6005                       /SYSV00000000 (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7ffd00100000-7ffd00102000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
"""


def mapped(path: str, device: str = "fe:00", inode: int = 1, *, deleted: bool = False) -> MappedFile:
    return MappedFile(path=path, device=device, inode=inode, deleted=deleted)


def as_mapped(path: Path) -> MappedFile:
    """As the kernel would write a mapping of a file on an ordinary file system."""
    seen = path.stat()
    return mapped(str(path), f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}", seen.st_ino)


def digest(path: Path) -> FileDigest:
    return digest_file(path, cache=None)


def test_files_with_code_each_once_and_sorted() -> None:
    assert parse_maps(REAL) == (
        mapped("/dev/shm/kernels.so", "00:19", 6004),
        mapped("/opt/llama/bin/llama-server", "fe:00", 1001),
        mapped("/opt/llama/lib/libggml cpu.so.0", "103:02", 3001),
        mapped("/tmp/two\nlines.so", "fe:00", 5001),
        mapped("/usr/lib/libm.so.6", "fe:00", 4001, deleted=True),
    )


def test_two_files_of_one_name_are_two() -> None:
    lines = b"1-2 r-xp 0 fe:00 7 /lib/a.so\n3-4 r-xp 0 fe:00 8 /lib/a.so\n"
    assert parse_maps(lines) == (mapped("/lib/a.so", inode=7), mapped("/lib/a.so", inode=8))


def test_a_name_that_is_no_utf8_can_be_opened_again() -> None:
    (seen,) = parse_maps(b"1-2 r-xp 0 fe:00 7 /lib/\xff.so\n")
    assert os.fsencode(seen.path) == b"/lib/\xff.so"


@given(data=st.binary(max_size=300))
def test_any_bytes_give_absolute_paths_or_nothing(data: bytes) -> None:
    for text in (data, b"1-2 r-xp 0 fe:00 7 " + data):
        assert all(one.path.startswith("/") and one.inode for one in parse_maps(text))


def test_this_process_maps_its_interpreter() -> None:
    paths = {one.path for one in read_maps(os.getpid())}
    assert str(Path(sys.executable).resolve()) in paths
    assert not any("[" in path for path in paths)


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(AbsentError) as caught:
        read_maps(2**22 + 1)
    assert str(caught.value) == f"memory map `/proc/{2**22 + 1}/maps` is not there"


def test_a_process_that_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(AbsentError) as caught:
        read_maps(child.pid)
    child.wait()
    assert (
        str(caught.value)
        == f"process `{child.pid}` has no memory map, as it has ended or belongs to the kernel"
    )


SITE = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    "path, role",
    [
        ("/opt/llama/bin/llama-server", "build"),
        ("/elsewhere/libggml-cpu-icelake.so", "build"),
        ("/elsewhere/libggml-base.so.0.9.4", "build"),
        ("/elsewhere/libllama.so.0", "build"),
        ("/elsewhere/libmtmd.so", "build"),
        ("/build/lib/libgomp.so.1", "build"),
        ("/build/anything", "build"),
        ("/buildings/anything", "math"),
        (f"{SITE}/llama_cpp/lib/libggml-cuda.so", "build"),
        ("/usr/lib/libm.so.6", "math"),
        ("/lib/libm-2.31.so", "math"),
        ("/lib/libmvec.so.1", "math"),
        ("/usr/lib/libmount.so.1", "system"),
        ("/usr/lib/libgomp.so.1.0.0", "math"),
        (f"{SITE}/llama_cpp_python.libs/libgomp-a34b3233.so.1.0.0", "math"),
        ("/usr/lib/libomp.so.5", "math"),
        ("/opt/intel/libiomp5.so", "math"),
        ("/usr/local/cuda/lib64/libcudart.so.12.4.127", "math"),
        ("/usr/local/cuda/lib64/libcublasLt.so.12", "math"),
        (f"{SITE}/nvidia/cublas/lib/libcublas.so.12", "math"),
        ("/usr/lib/libnccl.so.2", "math"),
        ("/opt/rocm/lib/librocblas.so.4", "math"),
        ("/opt/rocm/lib/libhipblas.so.2", "math"),
        ("/opt/intel/mkl/libmkl_avx512.so.2", "math"),
        ("/usr/lib/libopenblas.so.0", "math"),
        ("/usr/lib/libopenblasp-r0.3.21.so", "math"),
        (f"{SITE}/numpy.libs/libscipy_openblas64_-32a4b2a6.so", "math"),
        (f"{SITE}/numpy.libs/libgfortran-040039e1.so.5.0.0", "math"),
        (f"{SITE}/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", "math"),
        ("/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.so", "math"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "driver"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "driver"),
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "driver"),
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1", "driver"),
        ("/opt/rocm/lib/libamdhip64.so.6", "driver"),
        ("/opt/rocm/lib/libhsa-runtime64.so.1", "driver"),
        ("/usr/lib/libvulkan.so.1.3.250", "driver"),
        ("/usr/lib/libvulkan_radeon.so", "driver"),
        ("/usr/lib/libGLX_nvidia.so.0", "driver"),
        ("/usr/bin/python3.11", "python"),
        ("/usr/lib/libpython3.11.so.1.0", "python"),
        ("/usr/lib/python3.11/lib-dynload/math.cpython-311-x86_64-linux-gnu.so", "python"),
        (f"{SITE}/blake3/blake3.cpython-311-x86_64-linux-gnu.so", "python"),
        (f"{SITE}/numpydoc/x.so", "python"),
        ("/usr/lib/libc.so.6", "system"),
        ("/usr/lib/ld-linux-x86-64.so.2", "system"),
        ("/usr/lib/libstdc++.so.6.0.30", "system"),
        ("/usr/lib/libssl.so.3", "system"),
        ("/lib64/ld-2.31.so", "system"),
        ("/usr/lib/libc-2.31.so", "system"),
        ("/usr/lib/libpthread.so.0", "system"),
        ("/usr/lib/libgcc_s.so.1", "system"),
        ("/usr/lib/libdb-5.3.so", "system"),
        ("/usr/lib/libnl-3.so.200.26.0", "system"),
        ("/usr/lib/libwayland-client.so.0", "system"),
        ("/usr/lib/libxcb-dri3.so.0.1.0", "system"),
        ("/usr/lib/libX11-xcb.so.1", "system"),
        ("/usr/lib/libcurl-gnutls.so.4", "system"),
        ("/usr/lib/libdrm_amdgpu.so.1", "system"),
        # Whoever has these before the others may compute anything.
        ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "math"),
        ("/home/me/libevil.so", "math"),
        ("/home/me/libcx.so.6", "math"),
        ("/home/me/my-libc.so.6", "math"),
    ],
)
def test_roles(path: str, role: EngineRole) -> None:
    assert role_of(PurePosixPath(path), [PurePosixPath("/build")]) == role


class TestEngineFiles:
    def test_a_file_as_it_is_locked(self, tmp_path: Path) -> None:
        library = tmp_path / "libggml.so"
        library.write_bytes(with_sections((b".text", 1, ALLOCATED | EXECUTABLE, b"code")))
        (tmp_path / "script.sh").write_bytes(b"#!/bin/sh\n")
        files = engine_files(
            [as_mapped(library), as_mapped(tmp_path / "script.sh")], build_folders=[], digest=digest
        )
        seen = digest(library)
        assert [(one.name, one.role, one.size_bytes) for one in files] == [
            ("libggml.so", "build", seen.size_bytes),
            ("script.sh", "math", 10),
        ]
        assert (files[0].sha256, files[0].blake3) == (seen.sha256, seen.blake3)
        assert files[0].code_digest == code_digest(library)
        assert files[1].code_digest is UNSET
        assert (files[0].build_id, files[1].build_id) == (build_id(library) or "", "")

    def test_a_broken_table_of_sections_costs_the_codes_digest_alone(self, tmp_path: Path) -> None:
        library = tmp_path / "libggml.so"
        library.write_bytes(header(sections_at=1 << 40, sections=3))
        (file,) = engine_files([as_mapped(library)], build_folders=[], digest=digest)
        assert (file.blake3, file.code_digest, file.build_id) == (digest(library).blake3, UNSET, "")

    def test_sorted_by_role_name_and_digest_and_no_double(self, tmp_path: Path) -> None:
        for folder, data in (("a", b"1"), ("b", b"2"), ("c", b"2")):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "libm.so.6").write_bytes(data)
            (tmp_path / folder / "libc.so.6").write_bytes(b"same")
        paths = sorted(tmp_path.rglob("*.so.6"))
        files = engine_files([as_mapped(path) for path in paths], build_folders=[], digest=digest)
        assert [(one.role, one.name) for one in files] == [
            ("math", "libm.so.6"),
            ("math", "libm.so.6"),
            ("system", "libc.so.6"),
        ]
        assert files[0].blake3 < files[1].blake3
        turned = engine_files([as_mapped(path) for path in reversed(paths)], build_folders=[], digest=digest)
        assert turned == files

    def test_a_build_folder_given_through_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real/tool").write_bytes(b"x")
        (tmp_path / "link").symlink_to("real")
        (file,) = engine_files(
            [as_mapped(tmp_path / "real/tool")], build_folders=[tmp_path / "link"], digest=digest
        )
        assert file.role == "build"

    @pytest.mark.parametrize(
        "libc", ["libc.so.6", "ld-linux-x86-64.so.2", "libc-2.31.so", "ld-musl-x86_64.so.1"]
    )
    def test_a_build_folder_that_is_also_the_systems_counts_for_nothing(
        self, tmp_path: Path, libc: str
    ) -> None:
        (tmp_path / "lib").mkdir()
        paths = [tmp_path / "lib" / name for name in ("libllama.so.0", "libssl.so.3", libc)]
        for path in paths:
            path.write_bytes(path.name.encode())
        files = engine_files([as_mapped(path) for path in paths], build_folders=[tmp_path], digest=digest)
        assert [(one.name, one.role) for one in files] == [
            ("libllama.so.0", "build"),
            *sorted([("libssl.so.3", "system"), (libc, "system")]),
        ]

    def test_a_removed_file_is_refused(self) -> None:
        with pytest.raises(InputError) as caught:
            engine_files([mapped("/lib/libm.so.6", deleted=True)], build_folders=[], digest=digest)
        assert str(caught.value) == "`/lib/libm.so.6` was removed or replaced while the engine ran it"
        assert caught.value.hint == "start the engine again, so that it runs the files that are there now"

    def test_a_replaced_file_is_refused(self, tmp_path: Path) -> None:
        library = tmp_path / "libm.so.6"
        library.write_bytes(b"new")
        seen = as_mapped(library)
        before = msgspec.structs.replace(seen, inode=seen.inode + 1)
        with pytest.raises(InputError) as caught:
            engine_files([before], build_folders=[], digest=digest)
        assert str(caught.value) == (
            f"`{library}` was replaced while the engine ran it: got inode `{seen.inode}` on device"
            f" `{seen.device}`, expected inode `{before.inode}` on device `{before.device}`"
        )

    def test_a_file_replaced_while_it_is_hashed_is_refused(self, tmp_path: Path) -> None:
        library = tmp_path / "libm.so.6"
        library.write_bytes(b"old")
        seen = as_mapped(library)

        def replacing(path: Path) -> FileDigest:
            (tmp_path / "new").write_bytes(b"new")
            (tmp_path / "new").replace(path)
            return digest(path)

        with pytest.raises(InputError, match="was replaced while the engine ran it"):
            engine_files([seen], build_folders=[], digest=replacing)

    def test_a_file_that_is_not_there_is_absent(self, tmp_path: Path) -> None:
        with pytest.raises(AbsentError) as caught:
            engine_files([mapped(f"{tmp_path}/gone.so")], build_folders=[], digest=digest)
        assert str(caught.value) == f"`{tmp_path}/gone.so`, which the engine runs, is not there"

    def test_another_number_of_the_device_is_asked_of_the_kernel(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # btrfs and overlayfs show one number in the maps and another in stat.
        library = tmp_path / "two words\n.so"
        library.write_bytes(b"x")
        seen = msgspec.structs.replace(as_mapped(library), device="00:2a")
        real = files.read_bounded

        def other_device(path: Path, max_bytes: int, what: str) -> bytes:
            return real(path, max_bytes, what).replace(as_mapped(library).device.encode(), b"00:2a")

        with pytest.raises(InputError, match="was replaced"):
            engine_files([seen], build_folders=[], digest=digest)
        monkeypatch.setattr(maps, "read_bounded", other_device)
        (file,) = engine_files([seen], build_folders=[], digest=digest)
        assert file.name == "two words↵.so"

    def test_a_process_whose_library_is_replaced(self, tmp_path: Path) -> None:
        library = tmp_path / "libggml-test.so"
        shutil.copy(Path(sys.executable).resolve(), library)
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC):
            (seen,) = (one for one in read_maps(os.getpid()) if one.path == str(library))
            (whole,) = engine_files([seen], build_folders=[], digest=digest)
            assert (whole.name, whole.role) == ("libggml-test.so", "build")
            (tmp_path / "new").write_bytes(b"new")
            (tmp_path / "new").replace(library)
            (after,) = (one for one in read_maps(os.getpid()) if one.path == str(library))
            assert after.deleted
            for one in (seen, after):
                with pytest.raises(InputError, match="replaced while the engine ran it"):
                    engine_files([one], build_folders=[], digest=digest)
