"""Ways to reach a finished operator, or code that nobody read, without saying its name where a reading expects it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.case.settings import Policy
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Reason

CPU = Policy(imports=(*Policy().imports, "__future__", "pathlib", "operator", "scipy", "array", "concurrent"))
GPU = Policy(imports=("functools", "math", "os", "typing", "torch", "triton", "yaml", "numpy"))

HIDDEN = {
    "a matrix by class": "import numpy as np\ny = np.asmatrix(a) * np.asmatrix(b)\n",
    "a matrix by view": "import numpy as np\ny = a.view(np.matrix) * b\n",
    "einsum": "import numpy as np\ny = np.einsum('ij,jk', a, b)\n",
    "tensordot": "from numpy import tensordot\n",
    "covariance": "import numpy as np\ny = np.cov(a)\n",
    "correlation": "import numpy as np\ny = np.corrcoef(a)\n",
    "polynomials": "import numpy as np\ny = np.polyval(a, b)\n",
    "kron": "import numpy as np\ny = np.kron(a, b)\n",
    "a ufunc's outer product": "import numpy as np\ny = np.multiply.outer(a, b)\n",
    "vecdot": "import numpy as np\nnp.vecdot(a, b, out=c)\n",
    "the fast Fourier transform": "import numpy as np\ny = np.fft.rfft(a)\n",
    "an FFT imported": "from numpy import fft\n",
    "ctypeslib": "import numpy as np\nnp.ctypeslib.load_library('a', '.')\n",
    "a pickle": "import numpy as np\nf = np.load('f.npy', allow_pickle=True).item()\n",
    "multivariate normals": "import numpy as np\ny = np.random.multivariate_normal(a, b)\n",
    "numpy's test tools": "import numpy.testing as t\nt.assert_allclose(a, b)\n",
    "yaml by a name in the text": "import yaml\nf = yaml.unsafe_load('!!python/name:numpy.dot')\n",
    "yaml's loader": "import yaml\nf = yaml.load('!!python/name:numpy.dot', yaml.UnsafeLoader)\n",
    "yaml's loader imported": "from yaml import UnsafeLoader\n",
    "annotations evaluated": "import typing\ndef f(x: 'print(1)'): pass\ntyping.get_type_hints(f)\n",
    "a forward reference": "from typing import ForwardRef\n",
    "singledispatch evaluates annotations": "import functools\n@functools.singledispatch\ndef f(x): pass\n",
    "an attribute set by wraps": "import functools, numpy\nfunctools.update_wrapper(f, g)\n",
    "operator's matrix product": "import operator\ny = operator.matmul(a, b)\n",
    "an attribute by operator": "import operator\nf = operator.attrgetter('dot')\n",
    "a method by operator": "from operator import methodcaller\n",
    "scipy's BLAS": "import scipy.linalg.blas as b\nb.sgemm(1, x, y)\n",
    "scipy's FFT": "from scipy import fft\n",
    "scipy's sparse product": "from scipy.sparse import csr_matrix\n",
    "numba's addresses": "from numba.extending import get_cython_function_address\n",
    "numba's core": "import numba.core.typing.ctypes_utils as c\nc.foo()\n",
    "numba's external functions": "from numba import types\nf = types.ExternalFunction('cblas_sgemm', None)\n",
    "numba's jitclass evaluates": "from numba.experimental import jitclass\n",
    "a signature that is a program": "import numba\n@numba.njit(\"print('x') or void()\")\ndef f(): pass\n",
    "a signature in a name": "import numba\ns = 'void()'\n@numba.njit(s)\ndef f(): pass\n",
    "a signature in a list": "from numba import vectorize\n@vectorize(['print(1)'])\ndef f(x): return x\n",
    "a signature by keyword": "import numba\nnumba.njit(signature_or_function='print(1)')\n",
    "signatures unpacked": "import numba\nnumba.njit(**{'signature_or_function': 'print(1)'})\n",
    "a breakpoint": "import os\nos.environ['PYTHONBREAKPOINT'] = 'numpy.dot'\ny = breakpoint(a, b)\n",
    "a class pattern": "import numpy as np\nmatch x:\n    case object(dot=f):\n        f(a, b)\n",
    "a positional class pattern": "class C: __match_args__ = ('dot',)\nmatch x:\n    case C(f):\n        f(a, b)\n",
    "an import inside a class": "class A:\n    import numpy as np\ny = A.np.matrix(a)\n",
    "a module kept on a class": "import numpy as np\nclass A:\n    m = np\ny = A.m.matrix(a)\n",
    "a module in a list": "import numpy as np\ny = [np][0].matrix(a)\n",
    "a module as a default": "import numpy as np\ndef f(m=np): return m.matrix\n",
    "a module in a loop": "import numpy as np\nfor m in (np,): m.matrix(a)\n",
    "a module by two names": "import numpy as np\na = b = np\nb.matrix(x)\n",
    "a module by many names": (
        "def f(): return d.matrix\ndef g():\n    global d\n    d = c\nc = b\nb = a\nimport numpy as a"
    ),
    "a name of two modules": "def f():\n    import numpy as m\n    return m.matrix\ndef g():\n    import own as m\n",
    "a name of two modules, by aliases": "import numpy as np, own\nm = own\nm = np\nm.matrix(a)\n",
    "the first of two modules": "import math as m\ndef f():\n    import numpy as m\n    return m.matrix(a)\n",
    "a module's attribute by dunder": "import numpy as np\nf = np.__getattr__('matrix')\n",
    "what a class is made of": "f = (1).__class__.__base__.__init__\n",
    "a reduction of an object": "f = x.__reduce_ex__(2)\n",
    "os runs": "import os\nos.system('true')\n",
    "os by another module": "import pathlib\npathlib.os.system('true')\n",
    "os by a path's flavour": "import pathlib\npathlib.Path()._flavour.os.system('true')\n",
    "os opens": "from os import open as o\n",
    "another module through a standard one": "from concurrent import futures\nfutures.thread.queue.x\n",
    "a package by its name": '__package__ = "numpy._core"\nfrom ._umath_tests import matrix_multiply as mm\n',
    "a package by a loop": "for __package__ in ('os',): pass\nfrom . import system as s\n",
    "a package by an import": "from own import name as __package__\nfrom ._umath_tests import matrix_multiply\n",
    "a package by a function": "def f():\n    global __package__\n    __package__ = 'os'\n",
    "a package that is not ours": "from . import bsr_array\n",
    "a search path": "import pack\npack.__path__ = ['/tmp']\n",
    "a search path by an import": "from pack import __path__ as p\np.append('tests')\nfrom pack.evil import f\n",
    "a search path of this package's": "from . import __path__\n",
    "this package's own search path": "__path__.append('tests')\n",
    "the same by another name": "p = __path__\np.append('tests')\n",
    "the same by its parts": "__path__[:] = ['tests']\n",
    "the same as a default": "def f(p=__path__): p.append('tests')\n",
    "the same as a text": "x = f'{__path__}'\n",
    "a loader by an import": "from math import __spec__ as s\ns.loader\n",
    "a module that answers": "def __getattr__(name): return 1\n",
    "a builtin class rebound": "class int(metaclass=M): __match_args__ = ('x',)\nmatch run:\n    case int(g): pass\n",
    "wraps that reads": "import functools\nfunctools.wraps(print, assigned=('dot',), updated=())(W())\n",
    "wraps handed on": "import functools\nw = [functools.wraps][0]\n",
    "a generator's code": "g = (i for i in ())\nc = g.gi_code.replace(co_names=('eval',))\n",
    "annotations evaluated late": "f.__annotations__['a']\n",
    "a reference evaluated": "r._evaluate({}, {}, frozenset())\n",
    "all of a module of ours": "from own import *\n",
    "a module of ours in a list": "import pack\n[pack][0].np\n",
    "a module of ours as a value": "import pack\n(lambda m: m)(pack).np\n",
    "an error's object": "import pack\ntry: pack.nothing\nexcept AttributeError as e: e.obj.np\n",
    "numba in a list": "from numba import njit\n[njit][0]('EVIL')\n",
    "numba in a class": "from numba import njit\nclass A: J = njit\nA.J('EVIL')\n",
    "numba renamed": "from numba import njit\nj = njit\nj('EVIL')\n",
    "numba by a second meaning": "from numba import typeof as j\nfrom numba import njit as j\nj('EVIL')(f)\n",
    "numba mapped": "from numba import njit\nlist(map(njit, ['EVIL']))\n",
    "a function that is a text": "from numba import njit\ndef s(): pass\ns = 'EVIL'\nnjit(s)\n",
    "numba's object mode": "from numba import objmode\nwith objmode(y='EVIL or float64'): pass\n",
    "numba's cache": "from numba import njit\n@njit(cache=True)\ndef f(): pass\n",
    "numba's own pipeline": "from numba import njit\n@njit(pipeline_class=P)\ndef f(): pass\n",
    "numba's overloads": "f.get_overload('EVIL')\n",
    "a product of random numbers": "import numpy as np\nnp.random.default_rng().multivariate_normal(a, b)\n",
    "twenty steps": "import ring\nring." + "ring." * 40 + "np\n",
    "a relative import of ours": "from .pack import np\nnp.matrix(a)\n",
    "own names that lead to numpy": "import pack\npack.np.matrix(a)\n",
    "own names inside a package": "import pack.inner\npack.inner.np.matrix(a)\n",
    "an own package's sibling": "from pack import user\nuser.use(a)\n",
}

PACK = {
    "own.py": "def matrix(x): return x\n",
    "pack/__init__.py": "import numpy as np\n",
    "pack/inner.py": "import numpy as np\n",
    "ring.py": "import ring\nimport numpy as np\n",
}
SIBLING = {"pack/user.py": "from . import inner\ndef use(a): return inner.np.matrix(a)\n"}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)
    return folder


def refused(folder: Path, policy: Policy) -> str:
    with pytest.raises(CandidateFault) as fault:
        check_policy(folder, policy)
    assert fault.value.reason is Reason.POLICY
    return fault.value.detail


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_hidden_is_refused(tmp_path: Path, name: str) -> None:
    siblings = SIBLING if name == "an own package's sibling" else {}
    refused(write(tmp_path, {"kernel.py": HIDDEN[name], **PACK, **siblings}), CPU)


@pytest.mark.parametrize(
    "path",
    [
        "triton.runtime.interpreter.np.dot",
        "triton.runtime.jit.inspect.currentframe",
        "triton.language.core.builtins.eval",
    ],
)
def test_a_kernel_language_leads_to_no_other_module(tmp_path: Path, path: str) -> None:
    root, _, rest = path.partition(".")
    refused(write(tmp_path, {"kernel.py": f"import {root}\n{root}.{rest}\n"}), GPU)
    module, _, name = path.rpartition(".")
    refused(write(tmp_path, {"kernel.py": f"from {module} import {name}\n"}), GPU)


TAKEN_NAMES = [
    "numpy.py",
    "sys.py",
    "yaml/__init__.py",
    "numpy/data.txt",
    "hillclimb/__init__.py",
    "os.py",
    "types.py",
]


@pytest.mark.parametrize(
    "name", [*TAKEN_NAMES, "concurrent/futures.py", "array.py", "torch/__init__.py", "harness.py"]
)
def test_no_file_takes_a_foreign_modules_name(tmp_path: Path, name: str) -> None:
    told = refused(write(tmp_path, {"kernel.py": "import numpy as np\n", name: ""}), CPU)
    assert "hides the module" in told and "give it another name" in told


def test_a_folder_that_no_import_takes_may_be_called_as_an_installed_package(tmp_path: Path) -> None:
    files = {"kernel.py": "import numpy as np\n", "pytest/notes.md": "", "pytest/build.sh": ""}
    check_policy(write(tmp_path, files), CPU)
    refused(write(tmp_path, {**files, "pytest/more/inner.py": ""}), CPU)


@pytest.mark.parametrize(
    "name",
    [
        "fast.cpython-311-x86_64-linux-gnu.so",
        "fast.so",
        "fast.pyc",
        "pack/fast.abi3.so",
        "f.nbi",
        "a.zip",
    ],
)
def test_what_nobody_can_read_is_refused(tmp_path: Path, name: str) -> None:
    assert "nobody can read it" in refused(write(tmp_path, {"kernel.py": "", name: ""}), CPU)


def test_a_case_may_allow_more_by_name(tmp_path: Path) -> None:
    source = "import numpy as np\nfrom numpy import polyval\ny = np.polyval(a, b)\n"
    assert "the entry 'numpy.polyval' in policy.imports" in refused(
        write(tmp_path, {"kernel.py": source}), CPU
    )
    check_policy(tmp_path, CPU.model_copy(update={"imports": (*CPU.imports, "numpy.polyval")}))


HONEST = {
    "elementwise, memory and reductions": (
        "import numpy as np\nfrom numpy.lib.stride_tricks import sliding_window_view\n"
        "def run(x, y):\n    w = sliding_window_view(x, 3)\n    np.add(w[..., 0], w[..., 1], out=y)\n"
        "    y -= y.max(1, keepdims=True)\n    np.exp(y, out=y)\n    y /= np.sum(y, axis=1, keepdims=True)\n"
        "    np.add.reduceat(x, np.cumsum([0, 1]), axis=0, out=y)\n"
    ),
    "compiled with signatures": (
        "import numba\nfrom numba import float32, njit, prange, types\n"
        "@njit('void(float32[:, ::1], float32[:])', parallel=True, fastmath=True)\n"
        "def f(x, s):\n    for i in prange(x.shape[0]):\n        s[i] = x[i].sum()\n"
        "@numba.vectorize([float32(float32), 'f8(f8)'])\ndef g(x):\n    return x + 1\n"
        "@numba.guvectorize(['(f4[:], f4[:])'], '(n)->(n)')\ndef h(x, y):\n    y[:] = x\n"
        "compiled = njit(types.void(float32[:]))(lambda x: None)\n"
    ),
    "annotations and caches": (
        "from __future__ import annotations\nfrom functools import lru_cache, partial, wraps\n"
        "from typing import Any, Callable, NamedTuple\nclass Plan(NamedTuple):\n    tile: int = 8\n"
        "@lru_cache(maxsize=None)\ndef plan(n: int) -> Plan:\n    return Plan(n)\n"
        "def timed(f: Callable[..., Any]):\n    @wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
    ),
    "knobs": (
        "import os\nfrom pathlib import Path\nimport yaml\n"
        "knobs = yaml.safe_load((Path(__file__).parent / 'knobs.yaml').read_text())\n"
        "TILE = int(os.environ.get('TILE') or knobs['TILE']['default'])\n"
        "HERE = os.path.join(os.path.dirname(__file__), 'x')\n"
    ),
    "a choice among functions": (
        "import numpy as np\ndef run(x, y, fast):\n    op = np.exp2\n    if not fast:\n        op = np.exp\n"
        "    op(x, out=y)\n"
    ),
    "literal patterns": "def f(x):\n    match x:\n        case 1 | 'a' | [int(), *_]:\n            return {}\n",
    "special functions": "from scipy import special\ndef run(x, y):\n    special.erf(x, out=y)\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_what_is_plain_passes(tmp_path: Path, name: str) -> None:
    check_policy(write(tmp_path, {"kernel.py": HONEST[name]}), CPU)


def test_a_folder_is_no_link_and_has_no_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = write(tmp_path / "work", {"kernel.py": "import pack\n", "pack.py": ""})
    (folder / "pack").symlink_to(tmp_path / "elsewhere")
    assert "is a link to a folder" in refused(folder, CPU)
    (folder / "pack").unlink()
    (folder / "pack").mkdir()
    assert "a folder of the same name is imported instead" in refused(folder, CPU)


def test_what_is_not_followed_to_its_end_is_refused_where_libraries_are_allowed(tmp_path: Path) -> None:
    folder = write(tmp_path, {"kernel.py": "import ring\nring." + "ring." * 40 + "other\n", **PACK})
    told = refused(folder, CPU.model_copy(update={"library_calls": True, "graphs": True}))
    assert "too many steps" in told
