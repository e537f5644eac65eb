"""What compilers write where the source is wrong, and where the machine is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.gemm.compiler.verdict import machine_fault

OF_SOURCE = [
    'source.cu(1): error: identifier "y" is undefined',
    "source.cu(12): error #20: identifier is undefined",
    '/a b(1)/include/cute/layout.hpp(40): error: static assertion failed with "no"',
    "source.cu:3:5: error: expected unqualified-id",
    "source.cu:3: error: unterminated argument list",
    "source.cu(3): catastrophic error: #error directive: no",
    "source.cu:9:1: internal compiler error: Segmentation fault",
    "g++: internal compiler error: Segmentation fault signal terminated program cc1plus",
    "ptxas /tmp/tmpxft_1_7_source.ptx, line 51; error   : Instruction 'wgmma' not supported on .target 'sm_90'",
    "ptxas error   : Entry function '_Z1av' uses too much shared data (0x40000 bytes, 0x38c00 max)",
    "ptxas fatal   : (C7600) Register allocation failed with register count of '168'",
    "nvlink error   : Undefined reference to '_Z1fv' in 'source.o'",
    "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)",
    "nvcc error   : 'ptxas' died due to signal 6",
    "Segmentation fault (core dumped)",
    "Aborted",
    "source.cu(2): Error: Formal parameter space overflowed (40008 bytes required, max 32764 bytes allowed)",
    "source.cu:1: Error: no such instruction: `nonsense'",
    "/usr/bin/ld: source.o: undefined reference to `f'\ncollect2: error: ld returned 1 exit status",
    'source.cu(1): warning: no\n    f();\n\nsource.cu(3): error: identifier "y" is undefined\n\n1 error detected',
    'source.cu(3): error: static assertion failed with "the tile would run out of memory"',
    'source.cu(3): error: identifier "y" is undefined\n    f(y, "Out of memory");\n      ^',
    'source.cu:3:1: error: expected ;\n   12 |   catch (std::bad_alloc&) { log("Killed"); }',
]
OF_MACHINE = [
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
    "nvcc error   : 'ptxas' died due to signal 15",
    "nvcc error   : 'ptxas' died due to signal 7 (Bus error)",
    "g++: fatal error: Killed signal terminated program cc1plus",
    "g++: internal compiler error: Killed (program cc1plus)",
    "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes",
    "cc1plus: fatal error: error closing -: No space left on device",
    "source.cu:5:1: fatal error: error writing to source.s: No space left on device",
    "sh: 1: cicc: not found",
    "/bin/bash: line 1: cicc: command not found",
    "sh: line 1: 1234 Killed                  cicc --c++17",
    "ptxas fatal   : Memory allocation failure",
    "x.h(189): catastrophic error: out of memory",
    "source.cu(1): catastrophic error: error while writing generated C++ file: No space left on device",
    "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted",
    "collect2: fatal error: ld terminated with signal 9 [Killed]",
    "source.cu:1:10: fatal error: my header.h: No such file or directory",
    "Killed",
    "ptxas fatal   : Could not open output file '/tmp/a.cubin'",
    "terminate called after throwing an instance of 'std::bad_alloc'\nnvcc error   : 'cicc' died due to signal 6",
    "nvcc fatal   : Unsupported gpu architecture 'compute_90b'",
    "source.cu:1:10: fatal error: curand_kernel.h: No such file or directory",
    'source.cu(1): catastrophic error: cannot open source file "curand_kernel.h"',
    "",
]


@pytest.mark.parametrize("told", OF_SOURCE)
def test_an_error_of_the_source_is_a_verdict(told: str) -> None:
    assert machine_fault(told, 2) == ""
    assert machine_fault(f"source.cu(1): warning: no\n{told}\n1 error detected\n", 1) == ""


@pytest.mark.parametrize("told", OF_MACHINE)
def test_an_error_of_the_machine_is_none(told: str) -> None:
    assert machine_fault(told, 1)
    assert machine_fault(f"source.cu(1): warning: no\n{told}\nmore\n", 137)


@pytest.mark.parametrize(
    "told", [text for text in OF_MACHINE if "source.cu" not in text and "x.h" not in text]
)
@pytest.mark.parametrize("error", OF_SOURCE[:3])
def test_the_machine_may_fail_after_an_error(told: str, error: str) -> None:
    if "Unsupported" not in told and told:
        assert machine_fault(f"{error}\n{told}\n", 1)


@given(st.text(), st.integers(-64, 255))
def test_what_names_no_error_is_none(told: str, status: int) -> None:
    assert machine_fault(told.replace("error", "").replace("fatal", "").replace("died", ""), status)
