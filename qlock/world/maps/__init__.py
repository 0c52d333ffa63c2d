"""What a running process has mapped with code in it, and what role each file plays.

Lives here: reading ``/proc/PID/maps``, the table of roles, and the files of an engine as a lock pins them. Beside
it: the code inside a file (``elf``). Does not live here: digests (``world.digests``), when to look.

**Roles**, the first that fits:

1. ``build``: what lies in a build folder (one that is not also libc's), or is named like a part of llama.cpp (``libllama``, ``libggml``,
   ``libmtmd``, ``llama-…``).
2. ``driver``: ``libcuda``, ``libnvidia-…``, the Vulkan loader and its drivers, the kernel interfaces of HIP and
   Level Zero.
3. ``math``: libraries known to compute (libm, libmvec, OpenMP, BLAS, CUDA's and ROCm's and oneAPI's), and **numpy's
   own libraries and its bundled BLAS**: the embedded engine's worker turns logits into probabilities and nats
   with numpy, so another numpy can give another last digit.
4. ``python``: the interpreter, ``libpython``, and every other extension module.
5. ``system``: libraries of the system that are known to compute nothing that reaches an answer. libc and libstdc++ are
   here: they move and sort what is computed (``expf`` is in libm).
6. ``math``: the rest. A library that nobody knows may compute anything, or stand in front of one that does
   (``LD_PRELOAD``, ``/etc/ld.so.preload``, ``GGML_BACKEND_PATH``); so one that appears or changes is seen.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from msgspec import UNSET

from qlock.core.facts import EngineFile, EngineRole
from qlock.errors import AbsentError, InputError
from qlock.world.files import read_bounded, shown
from qlock.world.interface import FileDigest, MappedFile
from qlock.world.maps.elf import build_id, code_digest

_MAX_MAPS_BYTES = 64 << 20
_DELETED = b" (deleted)"

# address, permissions, offset, device, inode, path. The path is all that follows, spaces and all.
_LINE = re.compile(rb"[0-9a-f]+-[0-9a-f]+ (\S{4}) [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) (\d+) +(/.*)")

# Mapped by drivers and just-in-time compilers; there is no file to look at.
_NO_FILES = re.compile(rb"/(memfd:|SYSV|dev/(?!shm/)|anon_hugepage|i915|drm )")

_LIBRARY_END = r"([-.][\w.+-]*)?\.so(\.[\w.]+)?"
_BUILD = re.compile(r"(libllama|libggml|libmtmd|llama-).*")
_DRIVER = re.compile(
    r"(libcuda|libcudadebugger|libamdhip64|libOpenCL|libze_\w+)"
    + _LIBRARY_END
    # The card's own shader compilers turn Vulkan kernels into code.
    + r"|(libnvidia|libGLX_nvidia|libvulkan|libVkLayer|libLLVM|libamd_comgr|libhsa-runtime|amdvlk|libigc).*"
)
_MATH = re.compile(
    r"(libm|libmvec|libgomp|libomp|libomptarget|libiomp5|libquadmath|libimf|libsvml|libirc|libintlc|libirng"
    r"|libblas|libcblas|liblapack|liblapacke|libatlas|libtbb|libsycl)"
    + _LIBRARY_END
    + r"|lib(cublas|cudart|cudnn|cufft|curand|cusolver|cusparse|cutensor|nvrtc|nvJitLink|nccl|rccl"
    r"|rocblas|rocsolver|rocsparse|rocfft|hipblas|hiprtc|MIOpen|migraphx"
    r"|openblas|scipy_openblas|mkl_|onemkl|dnnl|blis|flexiblas|armpl|kleidiai|nvpl_).*"
)
_PYTHON = re.compile(r"(python[\d.]*|libpython.*)")
_SYSTEM = re.compile(
    # C and C++, and what the loader needs.
    r"(libc|ld|ld-linux\S*|ld-musl\S*|libdl|libpthread|librt|libutil|libresolv|libnsl|libnss_\w+|libcrypt|libanl"
    r"|libgcc_s|libstdc\+\+|libc\+\+|libc\+\+abi|libunwind|libatomic"
    # Compression, texts, databases, terminals.
    r"|libz|libzstd|liblzma|libbz2|liblz4|libsnappy|libdeflate|libbrotli\w+|libffi|libuuid|libexpat|libxml2|libicu\w+"
    r"|libsqlite3|libdb|libgdbm(_compat)?|libmpdec|libreadline|libhistory|libedit|libncursesw?|libtinfow?|libpanelw?"
    r"|libintl|libiconv|libcharset|libunistring|libpcre\w*|libglib|libbsd|libmd"
    # Networks and secrets.
    r"|libcrypto|libssl|libgnutls|libnettle|libhogweed|libgmp|libtasn1|libp11-kit|libcurl(-gnutls)?|libnghttp[23]"
    r"|libngtcp2\w*|libidn2?|librtmp|libssh2?|libpsl|libgssapi_krb5|libkrb5(support)?|libk5crypto|libcom_err"
    r"|libkeyutils|libldap\w*|liblber\w*|libsasl2|libtirpc|libibverbs|librdmacm|libmlx[45]|libnl|liburing"
    # The kernel's interfaces, and windows, which Vulkan's loader asks about.
    r"|libnuma|libudev|libsystemd|libcap|libselinux|libmount|libblkid|libelf|libdw|libsensors|libdrm\w*|libpciaccess"
    r"|libxcb|libX\w+|libxshmfence|libwayland|libgbm|libEGL\w*|libGL\w*|libglapi)" + _LIBRARY_END
)
_LIBC = re.compile(r"(libc|ld)([-.].*)?\.so.*|ld-musl-.*")
_PACKAGES = ("site-packages", "dist-packages")
_NUMPY = ("numpy", "numpy.libs")


def read_maps(pid: int) -> tuple[MappedFile, ...]:
    """Files mapped with code by a process, sorted by path.

    Raises:
        AbsentError: There is no such process, it has ended, or it may not be looked at.
    """
    data = read_bounded(Path(f"/proc/{pid}/maps"), _MAX_MAPS_BYTES, "memory map")
    if not data:
        raise AbsentError(f"process `{pid}` has no memory map, as it has ended or belongs to the kernel")
    return parse_maps(data)


def parse_maps(data: bytes) -> tuple[MappedFile, ...]:
    """The file-backed mappings with an executable part in the bytes of a ``/proc/PID/maps``, each file once.

    NOTE: the kernel writes a newline in a name as ``\\012`` and leaves a backslash alone, and marks a removed
    file by adding `` (deleted)`` to its name; a file that is really named so reads as something that is not
    there, and is refused later.
    """
    seen: set[tuple[str, str, int, bool]] = set()
    for line in data.split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or b"x" not in match[1] or match[3] == b"0" or _NO_FILES.match(match[4]):
            continue
        path = match[4].replace(rb"\012", b"\n")
        deleted = path.endswith(_DELETED)
        name = os.fsdecode(path.removesuffix(_DELETED))
        seen.add((name, match[2].decode(), int(match[3]), deleted))
    return tuple(
        MappedFile(path=path, device=device, inode=inode, deleted=deleted)
        for path, device, inode, deleted in sorted(seen)
    )


def role_of(path: PurePath, build_folders: Sequence[PurePath]) -> EngineRole:
    """What a mapped file is to an engine; the rules are in the module's text."""
    name = path.name
    if any(path.is_relative_to(folder) for folder in build_folders) or _BUILD.fullmatch(name):
        return "build"
    if _DRIVER.fullmatch(name):
        return "driver"
    inside = _inside_packages(path)
    if _MATH.fullmatch(name) or (inside and inside[0] in _NUMPY):
        return "math"
    if inside or "lib-dynload" in path.parts or _PYTHON.fullmatch(name):
        return "python"
    return "system" if _SYSTEM.fullmatch(name) else "math"


def _inside_packages(path: PurePath) -> tuple[str, ...]:
    """The parts of a path below the innermost ``site-packages``; empty when there is none."""
    parts = path.parts
    for place in reversed(range(len(parts))):
        if parts[place] in _PACKAGES:
            return parts[place + 1 :]
    return ()


def engine_files(
    mapped: Sequence[MappedFile],
    *,
    build_folders: Sequence[Path],
    digest: Callable[[Path], FileDigest],
) -> tuple[EngineFile, ...]:
    """The mapped files as a lock pins them, sorted by role and name (and digest, where two have one name).

    Args:
        mapped: What ``read_maps`` saw.
        build_folders: Everything below them is the engine's build; symbolic links in them are resolved.
        digest: Digests of a file (``world.digests.digest_file`` with a cache).

    Raises:
        AbsentError: A mapped file cannot be read.
        InputError: A mapped file has been removed or replaced since: what the process runs can no longer be read.
    """
    folders = _own_folders([Path(os.path.realpath(folder)) for folder in build_folders], mapped)
    files: set[EngineFile] = set()
    for one in mapped:
        path = Path(one.path)
        _refuse_replaced(one)
        digests = digest(path)
        code = _unless_broken(code_digest, path)
        files.add(
            EngineFile(
                name=shown(path.name),
                role=role_of(path, folders),
                size_bytes=digests.size_bytes,
                sha256=digests.sha256,
                blake3=digests.blake3,
                build_id=_unless_broken(build_id, path) or "",
                code_digest=UNSET if code is None else code,
            )
        )
        _refuse_replaced(one)
    return tuple(sorted(files, key=lambda file: (file.role, file.name, file.blake3)))


def _unless_broken(read: Callable[[Path], str | None], path: Path) -> str | None:
    # The loader runs files whose section table a tool has broken, and the whole file is pinned anyway.
    try:
        return read(path)
    except InputError:
        return None


def _own_folders(folders: Sequence[Path], mapped: Sequence[MappedFile]) -> list[Path]:
    """The build folders without those of the system: llama.cpp may be installed beside libc, and names tell then."""
    libc = [path for one in mapped if _LIBC.fullmatch((path := PurePath(one.path)).name)]
    return [folder for folder in folders if not any(path.is_relative_to(folder) for path in libc)]


def _refuse_replaced(mapped: MappedFile) -> None:
    """Refuse a mapping whose name no longer leads to the file that was mapped.

    The number of the device in ``/proc/PID/maps`` is not the ``st_dev`` of the file on btrfs and overlayfs, so
    where they differ, the file is mapped here too and the kernel asked what it writes for it now.
    """
    path = Path(mapped.path)
    hint = "start the engine again, so that it runs the files that are there now"
    if mapped.deleted:
        raise InputError(f"`{shown(path)}` was removed or replaced while the engine ran it", hint=hint)
    try:
        seen = path.stat()
    except (OSError, ValueError) as error:
        raise AbsentError(f"`{shown(path)}`, which the engine runs, is not there", hint=hint) from error
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
    if (device, seen.st_ino) == (mapped.device, mapped.inode) or _as_mapped_here(path, mapped):
        return
    raise InputError(
        f"`{shown(path)}` was replaced while the engine ran it: got inode `{seen.st_ino}` on device `{device}`,"
        f" expected inode `{mapped.inode}` on device `{mapped.device}`",
        hint=hint,
    )


def _as_mapped_here(path: Path, mapped: MappedFile) -> bool:
    """Whether a mapping of ``path`` made now has the device and inode of ``mapped``."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ):
            lines = read_bounded(Path("/proc/self/maps"), _MAX_MAPS_BYTES, "memory map").split(b"\n")
    except (OSError, ValueError):
        return False
    name = os.fsencode(path).replace(b"\n", rb"\012")
    wanted = (mapped.device.encode(), str(mapped.inode).encode(), name)
    return any(tuple(line.split(None, 5)[3:]) == wanted for line in lines)
