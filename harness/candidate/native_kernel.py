"""A kernel in C or C++: compiled inside the sandbox, while processes may still be started, and called through ctypes.

The function takes a pointer to each array, inputs then outputs, then one to the sizes of all of them, an int64 a
dimension in the same order, then the attributes: whole numbers and booleans as int64, others as double.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hillclimb.harness.candidate.slots import HostSlots, Kernel
from hillclimb.harness.channel.layout import Array, Attribute, SlotLayout

COMPILERS = {".c": "cc", ".cc": "c++", ".cpp": "c++", ".cxx": "c++"}

FLAGS = ("-O2", "-march=native", "-fPIC", "-shared", "-fno-math-errno")
"""Before those of the knobs, of which the last of a kind counts."""

LINK = ("-Wl,-z,defs", "-lm")
"""Nothing may be left to whatever else the process has loaded."""

MAX_MESSAGE_CHARS = 4000

MATHEMATICS = (
    "acos|acosh|asin|asinh|atan|atan2|atanh|cbrt|ceil|copysign|cos|cosh|erf|erfc|exp|exp10|exp2|expm1|fabs|fdim|floor"
    "|fma|fmax|fmin|fmod|frexp|hypot|ilogb|ldexp|lgamma|llrint|llround|log|log10|log1p|log2|logb|lrint|lround|modf"
    "|nearbyint|nextafter|pow|remainder|remquo|rint|round|roundeven|scalbln|scalbn|sin|sincos|sinh|sqrt|tan|tanh"
    "|tgamma|trunc"
)

RUNTIME = re.compile(
    r"mem(cpy|set|move|cmp|chr|pcpy)|str(len|cmp|ncmp|tol|toul|toll|tod|tof)|ato[ifl]|(m|c|re|aligned_)alloc|free"
    r"|posix_memalign|qsort|bsearch|abort|getenv|environ|printf|puts|putchar|fprintf|snprintf|std(out|err)|fflush"
    r"|pthread_\w+|sched_yield|nanosleep|clock_gettime|sysconf|GOMP_\w+|omp_\w+"
    r"|__(stack_chk_fail|assert_fail|errno_location|gmon_start__|cxa_\w+|gxx_personality_v0|tls_get_addr|\w+_chk)"
    r"|_ITM_\w+|_Unwind_\w+|_Z[nd][wal]\w+|_ZN?K?St\w+|_ZT[IVS]\w+|_ZSt\w+|_ZGV[a-z]\w+"
    rf"|(__)?({MATHEMATICS})[fl]?(_finite)?"
)
"""What a compiled kernel may take from the C and C++ runtimes; a library's functions, and dlopen, are not among it."""


class CompilationError(Exception):
    """The compiler refused the source; its own words."""


class ForeignSymbolError(Exception):
    """The compiled library takes something from elsewhere that no kernel needs."""


def is_native(entry: str) -> bool:
    """Whether an entry, `file:function`, is compiled."""
    return Path(entry.partition(":")[0]).suffix in COMPILERS


def build_library(workspace: Path, entry: str, flags: Sequence[str], library: Path | None = None) -> Path:
    """Compile the file of an entry to `library`, or a scratch file, and load nothing.

    Raises CompilationError, ForeignSymbolError.
    """
    file = entry.partition(":")[0]
    library = library or Path(os.environ["TMPDIR"], "kernel.so")
    compiler = COMPILERS[Path(file).suffix]
    _run([compiler, *FLAGS, *flags, "-I", str(workspace), "-o", str(library), str(workspace / file), *LINK])
    foreign = foreign_symbols(_run(["nm", "-D", "-P", "--undefined-only", str(library)]))
    if foreign:
        raise ForeignSymbolError(
            f"takes {', '.join(foreign[:5])} from outside its own source, which no kernel needs"
        )
    return library


def _run(command: Sequence[str]) -> str:
    """What a program prints. Raises CompilationError with its errors."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise CompilationError(f"{command[0]} is not installed here; install a C compiler, as gcc") from None
    if done.returncode:
        raise CompilationError(
            done.stderr[-MAX_MESSAGE_CHARS:] or f"{command[0]} left with status {done.returncode}"
        )
    return done.stdout


def foreign_symbols(listing: str) -> list[str]:
    """Of nm's listing of what a library takes from elsewhere, what is not the runtime's; without versions."""
    names = (line.split()[0].partition("@")[0] for line in listing.splitlines() if line.strip())
    return sorted({name for name in names if not RUNTIME.fullmatch(name)})


def open_kernel(library: Path, entry: str) -> Kernel:
    """The entry's function as a Python one. Raises AttributeError where the library has none of that name."""
    found = getattr(ctypes.CDLL(str(library), mode=os.RTLD_NOW), entry.partition(":")[2])
    found.restype = None
    kernel: Kernel = found
    return kernel


def native_slots(descriptor: int, layout: SlotLayout) -> HostSlots:
    """Slots whose arguments are what such a function takes. Raises TypeError for what none can be handed."""
    strided = [array.name for array in (*layout.inputs, *layout.outputs) if array.strides is not None]
    if strided:
        raise TypeError(
            f"{', '.join(strided)} have strides of their own; a compiled kernel takes C-contiguous arrays"
        )
    sizes = [size for array in (*layout.inputs, *layout.outputs) for size in array.shape]
    told = (ctypes.c_int64 * len(sizes))(*sizes)
    last = (told, *(_number(name, value) for name, value in layout.attributes.items()))
    slots = HostSlots(descriptor, layout, _pointer)
    slots.arguments = [(*pointers, *last) for pointers in slots.arguments]
    slots.attributes = {}
    return slots


def _pointer(memory: mmap.mmap, array: Array, offset: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory, offset)))


def _number(name: str, value: Attribute) -> ctypes.c_int64 | ctypes.c_double:
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    raise TypeError(f"attribute {name!r} is {value!r}; a compiled kernel takes numbers and booleans")
