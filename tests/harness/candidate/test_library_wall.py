"""Where finished libraries' code was taken away, no spelling reaches them, and everything else still runs."""

from __future__ import annotations

import json
import os
import platform
import signal
import site
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.candidate.wall import library_wall
from hillclimb.harness.duel.process.launch_spec import ONE_THREAD

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="breakpoints are known for x86-64 and aarch64"
)

IMPORT = "from hillclimb.harness.candidate.wall.library_wall import block_libraries\n"
WALL = f"{IMPORT}block_libraries()\n"
ARRAYS = "a = np.ones((64, 64), np.float32); d = np.ones((64, 64))\n"
TENSORS = "a = torch.ones(64, 64)\n"

NUMPY = {
    "a product": "a @ a",
    "dot": "np.dot(a, a)",
    "a method": "a.dot(a)",
    "inner": "np.inner(a, a)",
    "a vector's product": "a[0] @ a[0]",
    "a matrix and a vector": "a @ a[0]",
    "doubles": "d @ d",
    "complex numbers": "(d + 1j) @ (d + 1j)",
    "a matrix by class": "np.asmatrix(a) * np.asmatrix(a)",
    "einsum that plans": "np.einsum('ij,jk->ik', a, a, optimize=True)",
    "tensordot": "np.tensordot(a, a)",
    "covariance": "np.cov(a)",
    "multi_dot": "np.linalg.multi_dot([a, a, a])",
    "an inverse": "np.linalg.inv(d)",
    "singular values": "np.linalg.svd(d)",
    "a Fourier transform": "np.fft.rfft(d)",
    "numpy's tests' product": "__import__('numpy._core._umath_tests')._core._umath_tests.matrix_multiply(d, d)",
    "integers": "a.astype(int) @ a.astype(int)",
    "strided arrays": "a[::2, ::2] @ a[::2, ::2]",
    "half precision": "np.matmul(a.astype(np.float16), a.astype(np.float16))",
    "einsum that does not plan": "np.einsum('ij,jk->ik', a, a)",
    "a sum of einsum's": "np.einsum('ij->i', a)",
    "vecdot": "np.vecdot(a, a)",
    "vdot": "np.vdot(a, a)",
    "a convolution": "np.convolve(a[0], a[0])",
    "objects": "a.astype(object) @ a.astype(object)",
}

OTHERS = {
    "scipy's transforms": "__import__('scipy.fft').fft.rfft(d)",
    "sparse matrices": "s = __import__('scipy.sparse').sparse; s.csr_array(d) @ d",
    "distances": "__import__('scipy.spatial.distance').spatial.distance.cdist(d, d)",
    "filters": "__import__('scipy.signal').signal.correlate(d, d, method='direct')",
    "scipy's BLAS": "__import__('scipy.linalg.blas').linalg.blas.sgemm(1, a, a)",
    "scipy's LAPACK": "__import__('scipy.linalg').linalg.lu(d)",
    "BLAS by its address": (
        "__import__('ctypes').CFUNCTYPE(None)(__import__('numba').extending.get_cython_function_address("
        "'scipy.linalg.cython_blas', 'dgemm'))(*[0] * 13)"
    ),
    "numba's dot": "__import__('numba').njit(lambda x, y: np.dot(x, y))(d, d)",
}

TORCH = {
    "a product": "a @ a",
    "matmul": "torch.matmul(a, a)",
    "a linear layer": "torch.nn.functional.linear(a, a)",
    "batches": "torch.bmm(a[None], a[None])",
    "a matrix and a vector": "torch.mv(a, a[0])",
    "doubles": "a.double() @ a.double()",
    "a Fourier transform": "torch.fft.rfft(a)",
    "an inverse": "torch.linalg.inv(a)",
}


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **ONE_THREAD}
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


FORKING = """
import json, os, sys
for name, spelling in json.loads(sys.argv[1]).items():
    print(f"== {name}", file=sys.stderr, flush=True)
    child = os.fork()
    if child == 0:
        block_libraries()
        exec(compile(spelling, name, "exec"))
        os._exit(0)
    print(json.dumps([name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
"""


def spell(spellings: dict[str, str]) -> dict[str, tuple[int, str]]:
    """How each spelling ends in a fork that raised the wall, and what it says."""
    done = run(f"import numpy as np\n{IMPORT}{ARRAYS}{FORKING}", json.dumps(spellings))
    assert done.returncode == 0, done.stderr
    said = dict(part.split("\n", 1) for part in done.stderr.split("== ")[1:])
    return {name: (status, said[name]) for name, status in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def spelled() -> dict[str, tuple[int, str]]:
    return spell(NUMPY)


@pytest.mark.parametrize("name", NUMPY)
def test_no_spelling_reaches_a_library(name: str, spelled: dict[str, tuple[int, str]]) -> None:
    expect_trapped(name, *spelled[name])


@pytest.mark.slow(1, but=["distances"])
@pytest.mark.parametrize("name", OTHERS)
def test_none_of_what_other_packages_bring_reaches_one(name: str) -> None:
    expect_trapped(name, *spell({name: OTHERS[name]})[name])


def expect_trapped(name: str, status: int, said: str) -> None:
    assert status == -signal.SIGTRAP, said
    assert f'File "{name}"' in said, "it says where it was"


@pytest.mark.slow(2, but=["matmul"])
@pytest.mark.parametrize("name", TORCH)
def test_none_of_torchs_reaches_one(name: str) -> None:
    done = run(f"import torch\n{WALL}{TENSORS}{TORCH[name]}\nprint('reached')")
    assert done.returncode == -signal.SIGTRAP, done.stdout + done.stderr


PLAIN = """
import numpy as np, numba, math
{wall}
x = np.arange(64.0, dtype=np.float32).reshape(8, 8)
y = np.exp(x - x.max(1, keepdims=True)); y /= y.sum(1, keepdims=True)
np.sort(x); np.cumsum(x); np.mean(x); np.add.reduceat(x, [0, 4], axis=0); (x[:, :, None] * x[None]).sum(1)
@numba.njit(parallel=True, fastmath=True)
def product(a, b, c):
    for i in numba.prange(a.shape[0]):
        for j in range(b.shape[1]):
            total = np.float32(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total
z = np.empty_like(x); product(x, x, z)
assert z[1, 1] == sum(float(x[1, k] * x[k, 1]) for k in range(8))
from scipy import special
special.erf(x)
print("done", flush=True)
import os; os._exit(0)  # as the runner ends: a library's destructors lie in its code
"""

PLAIN_WITH_TORCH = """
import torch
{wall}
x = torch.rand(8, 8)
y = torch.empty_like(x); y.copy_(x); torch.softmax(x, 1); x.sum(); (x[:, :, None] * x[None]).sum(1); x.sort()
print("done", flush=True)
import os; os._exit(0)  # as the runner ends: a library's destructors lie in its code
"""


@pytest.mark.slow(4, but=["numpy and numba"])
@pytest.mark.slow(4, only=["torch"])
@pytest.mark.parametrize("source", [PLAIN, PLAIN_WITH_TORCH], ids=["numpy and numba", "torch"])
def test_everything_else_still_runs(source: str) -> None:
    done = run(source.format(wall=WALL))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_an_unknown_machine_is_an_error_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from hillclimb.harness.candidate.wall import library_wall

    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(library_wall, "_not_loaded_yet", lambda: iter(()))
    with pytest.raises(OSError, match="riscv64"):
        library_wall.block_libraries()


def test_the_files_are_known_by_their_names() -> None:
    from hillclimb.harness.candidate.wall.library_wall import FINISHED

    known = [
        "libscipy_openblas64_-32a4b2a6.so",
        "libmkl_core.so.2",
        "_umath_linalg.cpython-311-x86_64-linux-gnu.so",
    ]
    assert all(FINISHED.search(f"/site-packages/x/{name}") for name in known)
    assert not FINISHED.search("/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so")
    assert not FINISHED.search(f"{Path.home()}/blis/numpy/_core/other.so")


def test_libraries_below_a_virtual_environment_are_hidden_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter that it was made of may have packages of its own."""
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    (packages,) = (Path(folder) for folder in site.getsitepackages([str(tmp_path)])[:1])
    library = packages / "scipy.libs" / "libscipy_openblas-6cdc3b4a.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert library.parent in list(library_wall._copyable())
