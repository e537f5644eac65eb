"""Takes the code of finished libraries away from this process, before a workspace is imported.

Every page of code of BLAS, LAPACK and FFT libraries is replaced by breakpoints, loaded or not: what is not loaded yet
is loaded first, so that a later import finds this copy. Of libtorch_cpu, which is much else besides, the entry points
are. A kernel that reaches one dies of SIGTRAP, having printed where it was; the judge calls that by its name. No thread
of a library may be running: its environment has to forbid that before it is loaded (OPENBLAS_NUM_THREADS=1).

Then the files of those libraries cannot be opened any more (hillclimb.harness.candidate.wall.hidden_files), where the
kernel has Landlock: neither a second copy nor a fresh mapping can be made.

What it does not stop: instructions that the workspace brings along and writes where code may run. That needs what the
reading of the source refuses (ctypes, numba's addresses). Sources: mmap(2), elf(5).
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import mmap
import os
import platform
import re
import signal
import site
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from hillclimb.harness.candidate.wall import numpy_products
from hillclimb.harness.candidate.wall.hidden_files import hide_files

FINISHED = re.compile(
    r"(openblas|mkl|blis|lapack|cblas|libblas|libatlas|dnnl|fftw|_umath_linalg|pocketfft|duccfft"
    r"|_umath_tests|_rational_tests|sparsetools|_distance_|_ckdtree|_sigtools|_upfirdn|_nd_image)[^/]*\.so[^/]*$",
    re.I,
)
"""Files whose code is taken away whole: linear algebra, transforms, products of sparse matrices, distances, filters.
A module among them that is not imported by then cannot be imported any more."""

INSTALLED = (
    "numpy.libs/*openblas*",
    "scipy.libs/*openblas*",
    "numpy/_core/_*_tests.*.so",
    "scipy/fft/_pocketfft/*.so",
    "scipy/sparse/_*sparsetools.*.so",
    "scipy/spatial/_distance_*.so",
    "scipy/spatial/_ckdtree.*.so",
    "scipy/signal/_*.so",
    "scipy/ndimage/_nd_image.*.so",
    "mkl.libs/*",
    "../../lib*mkl_rt*",
)
"""Where packages keep them, below a folder of sys.path."""

COPYABLE = ("numpy.libs", "scipy.libs", "mkl.libs", "nvidia", "../../lib*mkl*")
"""What could be loaded once more under another name; loaded already, nothing opens it again."""

WITHOUT_TORCH = ("torch", "torch.libs", "functorch")

NUMPYS_OWN = ("numpy.fft", "numpy.linalg")
"""Imported first where numpy is: the code that makes their modules goes with the rest, and scipy imports them."""

SYSTEM_FOLDERS = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
)
SYSTEM_NAMES = re.compile(r"lib(openblas|blas|cblas|lapack|mkl_rt|fftw3)\w*\.so")

TORCH = re.compile(r"/libtorch_cpu\.so$")

ENTRY_POINTS = re.compile(
    rb"(cblas_\w+|dnnl_\w+|mkldnn_\w+|DftiCompute\w+|[sdczSDCZ](gemm|gemv|gemmt|symm|symv|syrk|ger|trmm|trsm|dot)\w*"
    rb"|mkl_(sparse|jit|cblas)_\w+|fftwf?_execute\w*)$"
)
"""Exported functions through which libtorch_cpu runs the libraries that were linked into it."""

BREAKPOINTS = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}
"""int3, brk #0."""

CLONE = {"x86_64": 56, "aarch64": 220}
"""A system call's number."""

CHUNK = 2 << 20
"""Bytes of breakpoints that are mapped at a time."""

MAY_MOVE, TO_PLACE = 1, 2
"""Flags of mremap(2)."""
FUNCTION, SYMBOL = 2, struct.Struct("<IBBHQQ")
DYNAMIC_SYMBOLS = 11
"""A section's type."""


def block_libraries(workspace: str = "/nowhere") -> None:
    """For good, in this process, which must end by os._exit: destructors of libraries lie in their code.

    Raises OSError where memory cannot be mapped, or on a machine whose breakpoint is not known.
    """
    faulthandler.register(signal.SIGTRAP, file=sys.stderr, all_threads=False, chain=True)
    for name in NUMPYS_OWN if "numpy" in sys.modules else ():
        importlib.import_module(name)
    for path in _not_loaded_yet():
        try:
            ctypes.CDLL(str(path))
        except OSError:
            continue  # what does not load cannot be called either
    code = BREAKPOINTS.get(platform.machine())
    if code is None:
        raise OSError(f"no breakpoint is known for {platform.machine()}; known are {', '.join(BREAKPOINTS)}")
    libc = _libc()
    os.register_at_fork(before=partial(_try_to_start_a_process, libc))
    breakpoints = _make_breakpoints(libc, code)
    if "numpy" in sys.modules:
        numpy_products.block_products(breakpoints)
    for start, end, _, _ in _code(FINISHED):
        _replace(libc, start, end, breakpoints)
    for start, end, offset, name in _code(TORCH):
        entries = (start + entry - offset for entry in _entry_points(Path(name)))
        _break_at(libc, (entry for entry in entries if start <= entry < end), code)
    hide_files(list(_copyable()), [Path(workspace)])


def _not_loaded_yet() -> Iterator[Path]:
    return _libraries(INSTALLED, sys.path)


def _copyable() -> Iterator[Path]:
    """Files and folders of finished libraries that nothing honest opens from now on, those of the interpreter below a
    virtual environment included."""
    patterns = COPYABLE if "torch" in sys.modules else (*COPYABLE, *WITHOUT_TORCH)
    return _libraries(patterns, [*sys.path, *site.getsitepackages([sys.base_prefix])])


def _libraries(patterns: Iterable[str], folders: Iterable[str]) -> Iterator[Path]:
    """What packages keep by these patterns below these folders, and the system's."""
    for folder in dict.fromkeys(folders):
        if folder.endswith("-packages"):
            yield from (path for pattern in patterns for path in Path(folder).glob(pattern))
    for place in filter(Path.is_dir, map(Path, SYSTEM_FOLDERS)):
        yield from (path for path in place.iterdir() if SYSTEM_NAMES.match(path.name))


def _code(names: re.Pattern[str]) -> Iterator[tuple[int, int, int, str]]:
    """(start, end, offset in the file, file) of every executable mapping of such files."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and names.search(fields[5]):
            start, _, end = fields[0].partition("-")
            yield int(start, 16), int(end, 16), int(fields[2], 16), fields[5]


def _make_breakpoints(libc: ctypes.CDLL, code: bytes) -> int:
    """The address of CHUNK bytes of them."""
    start = libc.mmap(0, CHUNK, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
    if start == ctypes.c_size_t(-1).value:
        raise OSError(ctypes.get_errno(), f"mmap: {os.strerror(ctypes.get_errno())}")
    ctypes.memmove(start, code * (CHUNK // len(code)), CHUNK)
    _protect(libc, start, CHUNK, mmap.PROT_READ | mmap.PROT_EXEC)
    return int(start)


def _try_to_start_a_process(libc: ctypes.CDLL) -> None:
    """Before fork(), which runs a handler of BLAS's: where no process may be started, the kernel says so first."""
    if libc.syscall(CLONE[platform.machine()], signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


def _replace(libc: ctypes.CDLL, start: int, end: int, breakpoints: int) -> None:
    """Map them where a library's code was, as often as it takes: no page is copied (mremap(2), old_size zero)."""
    for at in range(start, end, CHUNK):
        if libc.mremap(breakpoints, 0, min(CHUNK, end - at), MAY_MOVE | TO_PLACE, at) != at:
            raise OSError(ctypes.get_errno(), f"mremap: {os.strerror(ctypes.get_errno())}")


def _break_at(libc: ctypes.CDLL, addresses: Iterable[int], code: bytes) -> None:
    """Write a breakpoint over the instruction at each address."""
    pages: dict[int, list[int]] = {}
    for address in addresses:
        pages.setdefault(address - address % mmap.PAGESIZE, []).append(address)
    for page, there in pages.items():
        _protect(libc, page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
        for address in there:
            ctypes.memmove(address, code, len(code))
        _protect(libc, page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)


def _entry_points(path: Path) -> Iterator[int]:
    """Offsets in a shared object of its exported functions that are ENTRY_POINTS, aligned as instructions are."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (sections,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + size * n) for n in range(count)]
        for header in headers:
            if header[1] != DYNAMIC_SYMBOLS:
                continue
            names = headers[header[6]][4]
            for name, info, _, section, value, _ in SYMBOL.iter_unpack(
                data[header[4] : header[4] + header[5]]
            ):
                start = names + name
                if (
                    info & 15 == FUNCTION
                    and 0 < section < count
                    and ENTRY_POINTS.match(data[start : data.find(b"\0", start)])
                ):
                    yield value - headers[section][3] + headers[section][4]


def _protect(libc: ctypes.CDLL, start: int, size: int, protection: int) -> None:
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), protection):
        raise OSError(ctypes.get_errno(), f"mprotect: {os.strerror(ctypes.get_errno())}")


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = libc.mremap.restype = size
    libc.mmap.argtypes = (size, size, number, number, number, ctypes.c_long)
    libc.mremap.argtypes = (size, size, size, number, size)
    return libc
