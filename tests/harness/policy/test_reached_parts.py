"""Parts of listed things, classes' bodies and bases, names of Python's own, and sources that are hard to read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hillclimb.harness.case.settings import Policy
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.policy import allowed
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Reason
from tests.harness.policy.test_hidden_uses import CPU, GPU, refused, write

LIBRARIES = GPU.model_copy(
    update={"library_calls": True, "imports": (*GPU.imports, "cuda", "cutlass", "dataclasses")}
)
CUDA = "from cuda.bindings import driver, nvrtc\n"
TRITON = "import functools\nimport triton\nimport triton.language as tl\n"

PARTS = {
    "a listed class's method": TRITON + "triton.JITFunction.get_capture_scope(k)\n",
    "another of its": TRITON + "from triton import JITFunction as J\nJ._unsafe_update_src(k, 'x')\n",
    "what it keeps": TRITON + "x = triton.runtime.jit.JITFunction.raw_src\n",
    "a module behind the compiler": CUDA + "nvrtc.ctypes.CDLL(None)\n",
    "one with an underscore": CUDA + "driver._ctypes.CDLL(None)\n",
    "one behind cutlass": "import cutlass\ncutlass.base_dsl.dsl.os.system('id')\n",
    "one behind it, renamed": "from cutlass.cute import arch as a\na.x.subprocess.run('id')\n",
    "cutlass handed on": "import cutlass\nc = [cutlass][0]\n",
    "torch handed on": "import torch\nt = (torch,)[0]\n",
    "the driver handed on": CUDA + "d = {1: driver}[1]\n",
    "a statement timed": "import torch\ntorch.utils.benchmark.Timer(stmt='x').timeit(1)\n",
    "a statement timed, imported": "from torch.utils.benchmark import Timer\nTimer(stmt='x')\n",
    "code from a hub": "import torch\ntorch.hub.load('x', 'f', source='local')\n",
    "annotations of an operator": "import torch\ntorch.library.infer_schema(f, mutates_args=())\n",
    "a graph's text": "from torch import fx\nfx.GraphModule(m, g)\n",
    "annotations read": "import torch\ntorch.typing.get_type_hints(f)\n",
    "a pickle": "import torch\ntorch.load('x', weights_only=False)\n",
    "C++": "from torch.utils import cpp_extension as c\nc.load('x', [])\n",
    "an address": CUDA + "u = driver.CUDA_MEMCPY2D(id(x))\n",
    "an address by its name": CUDA + "u = driver.CUuuid(_ptr=id(x))\n",
    "torch behind torch": "import torch\ntorch.cuda.torch.library.infer_schema(f, mutates_args=())\n",
    "a private part of torch": "import torch\ntorch._library.infer_schema.infer_schema(f, mutates_args=())\n",
    "another": "from torch._inductor.runtime.compile_tasks import _reload_python_module\n",
    "a module of torch handed on": "import torch\nm = [torch.cuda][0]\n",
    "a library of its own": "from torch.cuda.memory import CUDAPluggableAllocator as C\nC('./l.bin', 'a', 'b')\n",
    "a structure handed on": CUDA + "m = [driver.CUDA_MEMCPY2D][0]\n",
    "a structure derived from": CUDA + "class U(driver.CUDA_MEMCPY2D):\n    pass\n",
    "a name of torch for something else": "import torch\ndef f(torch):\n    return torch.gi_frame\n",
    "a field's name by self": "import dataclasses\nself = dataclasses.fields(B)[0]\nself.name = 'a'\n",
    "a field's name": "import dataclasses\nf = dataclasses.field()\nf.name = 'x: y'\n",
}


@pytest.mark.parametrize("text", PARTS.values(), ids=PARTS)
def test_what_lies_behind_a_listed_name_is_not_listed(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path, {"kernel.py": text}), LIBRARIES)


@pytest.mark.parametrize("use", ["torch.library.custom_op", "torch._dynamo.reset", "torch.jit.script"])
def test_a_case_may_allow_a_module_of_torch(tmp_path: Path, use: str) -> None:
    module = use.rpartition(".")[0]
    allowing = LIBRARIES.model_copy(update={"imports": (*LIBRARIES.imports, module)})
    for text in (f"import torch\n{use}(f)\n", f"from {module} import {use[len(module) + 1 :]}\n"):
        folder = write(tmp_path / str(len(text)), {"kernel.py": text})
        assert f"'{module}' in policy.imports" in refused(folder, LIBRARIES)
        check_policy(folder, allowing)
    behind = write(tmp_path / "behind", {"kernel.py": f"import torch\n{module}.sys.modules\n"})
    assert "(sys)" in refused(behind, allowing)


def test_what_kernels_use_of_them_is(tmp_path: Path) -> None:
    text = (
        f"{CUDA}import cutlass\nimport cutlass.cute as cute\nimport torch\nfrom dataclasses import dataclass\n"
        "from torch.nn import functional as F\nfrom torch.utils.dlpack import from_dlpack\n"
        "torch.backends.cuda.matmul.allow_tf32\n"
        "p, s = driver.CUdeviceptr(1), driver.CUstream(0)\nc = driver.CUlaunchConfig()\nc.gridDimX = 3\n"
        "cute.copy(a, b)\ncute.math.exp2(a)\nx = F.silu(torch.linalg.norm(p))\nnvrtc.nvrtcCompileProgram(p, 0, [])\n"
        "x = driver.CUresult(0)\n@dataclass\nclass Plan:\n    name: str = ''\n"
        "    def call(self, name):\n        self.name = name\n"
    )
    check_policy(write(tmp_path, {"kernel.py": text}), LIBRARIES.model_copy(update={"library_calls": True}))


@pytest.mark.parametrize(
    "statement",
    ["if True:", "for _ in (1,):", "while True:", "with f():", "try:", "if 0:\n        pass\n    else:"],
)
@pytest.mark.parametrize("inner", ["o = os", "import os as o", "from os import path as o", "o: object = os"])
def test_a_module_is_not_kept_on_a_class(tmp_path: Path, statement: str, inner: str) -> None:
    closing = "\n    finally:\n        pass" if statement == "try:" else ""
    text = f"import os\nclass A:\n    {statement}\n        {inner}{closing}\nA.o.popen('id')\n"
    refused(write(tmp_path, {"kernel.py": text}), CPU)
    refused(write(tmp_path / "elsewhere", {"own.py": text, "kernel.py": "import own\nown.A.o\n"}), CPU)


def test_a_method_of_a_class_may_name_one(tmp_path: Path) -> None:
    text = "class A:\n    def f(self):\n        import os\n        o = os\n        return o.sep\n"
    check_policy(write(tmp_path, {"kernel.py": text}), CPU)


@pytest.mark.parametrize("name", ["__main__", "__mp_main__", "__future__", "_cython_3_1", "cython_runtime"])
def test_no_file_has_a_name_that_python_has_taken(tmp_path: Path, name: str) -> None:
    files = {f"{name}.py": "X = 1\n", "kernel.py": "x = 1\n"}
    assert "hides the module" in refused(write(tmp_path, files), CPU)
    files = {f"{name}/__init__.py": "X = 1\n", "kernel.py": "x = 1\n"}
    assert "hides the module" in refused(write(tmp_path / "folder", files), CPU)


@pytest.mark.parametrize(
    "coding", ["utf-7", "raw_unicode_escape", "unicode_escape", "utf-16", "cp037", "big5"]
)
def test_a_file_is_read_in_one_way_alone(tmp_path: Path, coding: str) -> None:
    folder = write(tmp_path, {"kernel.py": f"# coding: {coding}\nx = 1\n"})
    with pytest.raises(CandidateFault) as fault:
        check_policy(folder, GPU)
    assert fault.value.reason is Reason.DOES_NOT_LOAD


@pytest.mark.parametrize("coding", ["utf-8", "UTF8", "ascii", "latin-1"])
def test_usual_encodings_are_read(tmp_path: Path, coding: str) -> None:
    check_policy(write(tmp_path, {"kernel.py": f"# coding: {coding}\nx = 1\n"}), GPU)


BASES = [
    "class A([dict][0]):\n    pass\n",
    "class A(f()):\n    pass\n",
    "class A(*[dict]):\n    pass\n",
    "class A((lambda: dict)()):\n    pass\n",
    "class A(dict if f else list):\n    pass\n",
    "B = [dict][0]\nclass A(B):\n    pass\n",
    "B = [dict][0]\nC = B\nclass A(C):\n    pass\n",
    "def f(base):\n    class A(base):\n        pass\n",
    "def f(base):\n    class A(base[0]):\n        pass\n",
    "for B in (dict,):\n    class A(B):\n        pass\n",
    "class B:\n    pass\ndef f(B):\n    class A(B):\n        pass\n",
    "class A(B := [dict][0]):\n    pass\n",
    "with f() as B:\n    class A(B):\n        pass\n",
]


REBOUND = [
    "import triton.language as tl\ndef f(tl):\n    return tl.softmax(-1)\n",
    "import triton.language as tl\nfor tl in (x,):\n    tl.mm(x)\n",
    "from triton import language as q\n[q] = [x]\nq.softmax(-1)\n",
    "from triton import language as q\nwith f() as q:\n    q.sum()\n",
    "import triton.language as tl\nf = lambda tl: tl.softmax(-1)\n",
    "import triton.language as tl\ndef f():\n    tl = g()\n    return tl.mm(1)\n",
]


@pytest.mark.parametrize("text", REBOUND)
def test_a_name_that_is_bound_again_is_anything(tmp_path: Path, text: str) -> None:
    assert "finished operator" in refused(write(tmp_path, {"kernel.py": f"import torch\n{text}"}), GPU)


def test_so_is_one_of_the_workspaces_own(tmp_path: Path) -> None:
    files = {"own.py": "X = 1\n", "kernel.py": "import own\ndef f(own, b):\n    return own.dot(b)\n"}
    assert "finished operator" in refused(write(tmp_path, files), CPU)


@pytest.mark.parametrize(
    ("own", "use"),
    [
        ("B = [dict][0]\n", "from own import B\nclass A(B):\n    pass\n"),
        ("B = [dict][0]\n", "import own\nclass A(own.B):\n    pass\n"),
        ("class B:\n    pass\ndef make():\n    return B\n", "import own\nown.B = [dict][0]\n"),
        ("def make():\n    class A(dict):\n        pass\n", "import own\nown.dict = [list][0]\n"),
        ("import math as m\n", "import own\nown.m = 1\n"),
        ("def f(x):\n    return x\n", "import own\nown.f = [len][0]\n"),
    ],
)
def test_a_module_of_ones_own_is_what_its_file_says(tmp_path: Path, own: str, use: str) -> None:
    refused(write(tmp_path, {"own.py": own, "kernel.py": use}), CPU)


def test_its_classes_and_variables_may_be_used(tmp_path: Path) -> None:
    own = "CACHE = None\nclass B:\n    pass\n"
    use = "import own\nfrom own import B\nown.CACHE = {}\nclass A(own.B):\n    pass\nclass C(B):\n    pass\n"
    check_policy(write(tmp_path, {"own.py": own, "kernel.py": use}), CPU)


@pytest.mark.parametrize("text", BASES)
def test_a_class_says_what_it_derives_from(tmp_path: Path, text: str) -> None:
    assert "unnamed" in refused(write(tmp_path, {"kernel.py": text}), CPU)


def test_named_classes_may_be_derived_from(tmp_path: Path) -> None:
    text = (
        "from typing import Generic, NamedTuple, Protocol, TypeVar\nimport numpy as np\nT = TypeVar('T')\n"
        "class P(NamedTuple):\n    x: int\nclass B(Generic[T]):\n    pass\nclass C(B[int]):\n    pass\n"
        "class Q(Protocol):\n    pass\nclass E(ValueError):\n    pass\nN = np.ndarray\nclass D(N):\n    pass\n"
        "Kept = dict\nclass F(Kept):\n    pass\n"
    )
    check_policy(write(tmp_path, {"kernel.py": text}), CPU)


WRAPPER = "def adopt(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
DECORATES = (
    "def outer(n):\n    def adopt(f):\n        @functools.wraps(f)\n        def g(*a):\n            return n\n"
    "        return g\n    return adopt\n"
)


@pytest.mark.parametrize(
    "use",
    [
        "peek = adopt(tl.exp)\n",
        "k = triton.jit(adopt(k))\n",
        "h = [adopt][0]\n",
        "def get():\n    return adopt\nh = get()(tl.exp)\n",
        "@adopt\n@swap\ndef h(x):\n    pass\n",
        "h = adopt\nh(tl.exp)\n",
        "@triton.jit\n@adopt\ndef k(x):\n    pass\n",
    ],
)
def test_marks_of_a_librarys_function_are_not_taken_on(tmp_path: Path, use: str) -> None:
    assert "wraps" in refused(write(tmp_path, {"kernel.py": TRITON + WRAPPER + use}), GPU)
    elsewhere = {
        "own.py": f"import functools\n{WRAPPER}",
        "kernel.py": f"{TRITON}from own import adopt\n{use}",
    }
    assert "wraps" in refused(write(tmp_path / "own", elsewhere), GPU)
    nested = use.replace("@adopt", "@outer(1)").replace("adopt", "outer(1)")
    assert "wraps" in refused(write(tmp_path / "nested", {"kernel.py": TRITON + DECORATES + nested}), GPU)


@pytest.mark.parametrize(
    "text",
    [
        "f = [tl.reduce][0]\n@functools.wraps(f)\ndef g(x):\n    pass\n",
        "def adopt(fs):\n    for f in fs:\n        @functools.wraps(f)\n        def g(x):\n            pass\n",
        "def adopt(f):\n    q = f\n    @functools.wraps(q)\n    def g(x):\n        pass\n",
        "class A:\n    def adopt(self, f):\n        @functools.wraps(f)\n        def g(x):\n            pass\n",
        "class A:\n    m = [tl.exp][0]\n    @functools.wraps(m)\n    def g(x):\n        pass\n",
    ],
)
def test_what_is_wrapped_is_a_function_of_the_files(tmp_path: Path, text: str) -> None:
    assert "wraps" in refused(write(tmp_path, {"kernel.py": TRITON + text}), GPU)


def test_a_plain_function_may_be_decorated(tmp_path: Path) -> None:
    use = "@adopt\ndef run(x):\n    return x\n"
    check_policy(write(tmp_path, {"kernel.py": TRITON + WRAPPER + use}), GPU)
    files = {
        "own.py": f"import functools\n{WRAPPER}",
        "kernel.py": f"{TRITON}import own\n@own.adopt{use[6:]}",
    }
    check_policy(write(tmp_path / "own", files), GPU)
    nested = use.replace("@adopt", "@outer(1)")
    check_policy(write(tmp_path / "nested", {"kernel.py": TRITON + DECORATES + nested}), GPU)


@pytest.mark.parametrize(
    "slots",
    [
        "__slots__ = ('__triton_builtin__',)",
        "__slots__ = ['x', '__torch_function__']",
        "__slots__ = '__wrapped__'",
        "__slots__ = names",
        "__slots__ = (*names,)",
        "__slots__: tuple = ('__x__',)",
        "__slots__ = ()\n    __slots__ += names",
        "x = __slots__ = names",
        "for __slots__ in (names,):\n        pass",
        "__match_args__ = ('x',)",
    ],
)
def test_slots_are_written_out_and_are_no_marks(tmp_path: Path, slots: str) -> None:
    refused(write(tmp_path, {"kernel.py": f"class A:\n    {slots}\n"}), GPU)


@pytest.mark.parametrize("slots", ["('x', '_y')", "['x']", "()", "'x'"])
def test_slots_may_be_had(tmp_path: Path, slots: str) -> None:
    check_policy(write(tmp_path, {"kernel.py": f"class A:\n    __slots__ = {slots}\n"}), GPU)


@pytest.mark.parametrize(
    "use", ["import own\ndel own.help", "import own as o\ndel o.help", "import pack\ndel pack.own.help"]
)
def test_a_modules_names_are_not_deleted(tmp_path: Path, use: str) -> None:
    own = "help = None\ndef f():\n    return help('this')\n"
    files = {
        "own.py": own,
        "pack/__init__.py": "from pack import own\n",
        "pack/own.py": own,
        "kernel.py": f"{use}\n",
    }
    assert "deletes" in refused(write(tmp_path, files), CPU)


def test_options_of_a_function_of_numbas_are_not_changed(tmp_path: Path) -> None:
    policy = CPU.model_copy(update={"imports": (*CPU.imports, "numba")})
    text = "import numba\n@numba.njit\ndef g(x):\n    return x\ng.targetoptions['inline'] = f\n"
    refused(write(tmp_path, {"kernel.py": text}), policy)


def test_nothing_is_computed_to_tell_a_module_of_triton() -> None:
    assert allowed._is_module_of_triton("triton.language.core")
    assert not allowed._is_module_of_triton("triton.language.core.dtype.name")
    assert not allowed._is_module_of_triton("triton.runtime.driver.active")


def test_a_candidate_that_makes_the_reading_fail_is_told(tmp_path: Path) -> None:
    text = "if a: x = 1\n" + "elif a: x = 1\n" * 900
    with pytest.raises(CandidateFault) as fault:
        check_policy(write(tmp_path, {"kernel.py": text}), CPU)
    assert fault.value.reason is Reason.DOES_NOT_LOAD


LONG = {
    "aliases in reversed order": "".join(f"a{n + 1} = a{n}\n" for n in reversed(range(9000)))
    + "import os as a0\n",
    "uses of such a name": "import os, math\n" + "x = os\nx = math\n" * 2000 + "x.sep\n" * 4000,
    "functions within each other": "".join(f"{' ' * n}def f{n}(p):\n" for n in range(12))
    + f"{' ' * 12}a = b\n" * 9000,
    "many names": "".join(f"v{n} = u{n}\n" for n in range(9000)),
    "one name of many meanings": "import os, math\n" + "x = os\nx = math\n" * 4000,
}


def test_what_is_nested_deeply_is_not_read(tmp_path: Path) -> None:
    text = "".join(f"{' ' * n}class A{n}:\n" for n in range(60)) + f"{' ' * 60}pass\n"
    with pytest.raises(CandidateFault, match="lie within each other"):
        check_policy(write(tmp_path, {"kernel.py": text}), CPU)


@pytest.mark.clock
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_files_are_read_in_time(tmp_path: Path, text: str) -> None:
    began = time.monotonic()
    try:
        check_policy(write(tmp_path, {"kernel.py": text}), Policy(imports=(*CPU.imports, "math")))
    except CandidateFault as fault:
        assert fault.reason is Reason.POLICY
    assert time.monotonic() - began < 20
