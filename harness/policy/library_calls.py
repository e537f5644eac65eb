"""Finished operators a kernel might call instead of being one, read off its source.

Of torch there is a closed list of what an honest wrapper needs, since nearly everything else in it is an operator. A
kernel language's own instructions (tl.dot, tl.softmax, cute.gemm) are the kernel. Not caught: arithmetic between plain
names (`x * y` may be two integers), and what is hidden on purpose.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from functools import cache

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.names import DottedNames, attribute_of, base_of, nodes_of

LIBRARY_CALLS = words(
    "dot matmul vdot inner outer tensordot einsum linalg vecdot matvec vecmat convolve correlate blas lapack "
    "multivariate_normal"
)
"""Names under which NumPy and its kin offer finished products."""

PRODUCT_NAMES = LIBRARY_CALLS | words("__matmul__ __rmatmul__ __imatmul__")
"""These, and what `@` is called."""

LANGUAGES = ("triton", "cutlass", "cuda.bindings.nvrtc", "cuda.bindings.nvjitlink")
"""What is below these is how a kernel says what it does; none of them holds an operator that is done."""

JITS = re.compile(r"(triton|cutlass)\b.*\.(jit|kernel|constexpr_function)$")
"""Decorators whose functions are compiled for the GPU: there, `x.sum()` is an instruction."""

PLUMBING = words("Tensor device dtype Size finfo iinfo no_grad inference_mode")
MEMORY = words("empty empty_like empty_strided zeros zeros_like")
DEVICE = words(
    "device current_device device_count is_available get_device_properties get_device_capability get_device_name "
    "current_stream default_stream stream Stream Event"
)
ALLOWED_TORCH = PLUMBING | MEMORY | {f"cuda.{name}" for name in DEVICE}
"""What a kernel may use of torch, with its dtypes: workspace memory, questions about the device, streams and events."""

TOLERATED_TORCH = words(
    "LongTensor IntTensor BoolTensor FloatTensor full full_like ones ones_like view_as_real is_tensor "
    "is_floating_point compiler.disable __version__ version.cuda version.hip is_autocast_enabled get_autocast_dtype "
    "are_deterministic_algorithms_enabled get_num_threads cuda.set_device"
)
"""What public kernels have besides and does no harm; nobody is told to use it."""

VIEWS = words(
    "T mT H mH t view view_as expand expand_as permute transpose movedim moveaxis swapaxes swapdims squeeze unsqueeze "
    "narrow select unbind unflatten as_strided diagonal chunk detach"
)
QUESTIONS = words(
    "shape size stride dim ndim ndimension numel nelement dtype device itemsize element_size nbytes data_ptr layout "
    "const_data_ptr get_device storage_offset untyped_storage dim_order is_cuda is_contiguous is_meta is_cpu data "
    "requires_grad grad is_floating_point is_complex is_signed"
)
FILLS = words("new_empty new_empty_strided new_zeros zero_ fill_ record_stream")
OTHERS = words("name type mode values index indices split real imag")
"""Tensor methods whose names other objects have just as well."""

DRIVER = words(
    "cuInit cuGetErrorName cuGetErrorString cuModuleLoadData cuModuleLoadDataEx cuModuleGetFunction cuModuleGetGlobal "
    "cuLibraryLoadData cuLibraryGetKernel cuKernelGetFunction cuFuncSetAttribute cuFuncGetAttribute cuLaunchKernel "
    "cuLaunchKernelEx cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialClusterSize "
    "cuOccupancyMaxActiveClusters cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuMemsetD8Async cuMemsetD16Async "
    "cuMemsetD32Async cuDeviceGetAttribute cuCtxGetDevice cuuint32_t cuuint64_t"
)
"""Functions of the CUDA driver that load and launch a kernel; its types begin with CU."""

GRAPHS = re.compile(
    r"torch\.cuda\.(graphs?\b|CUDAGraph|make_graphed_callables|graph_)|.*\.cu(da)?(Graph|Stream(Begin|End)Capture)"
)


def find_library_calls(
    tree: ast.AST, names: DottedNames, own: Container[str], with_tensors: bool
) -> Iterator[tuple[int, str]]:
    """(line, problem) of each; `own` are the workspace's modules, `with_tensors` where torch's are handed over."""
    compiled = _inside_kernels(tree, names)
    for node in nodes_of(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield node.lineno, _tell("@")
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, problem) for problem in _imports(node, own))
        if id(node) in compiled:
            continue
        attribute = attribute_of(node)
        if attribute in PRODUCT_NAMES and _is_foreign(names.known(node), own):
            yield _line(node), _tell(str(attribute))
        if with_tensors:
            yield from ((_line(node), problem) for problem in _eager(node, names))
    for use, path in names.uses(tree):
        yield from ((use.lineno, problem) for problem in _outside_lists(path))


def find_graph_captures(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) of each name that captures or replays launches."""
    paths = [(node.lineno, path) for node, path in names.uses(tree)]
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom):
            paths += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    for line, path in paths:
        if GRAPHS.match(path):
            yield line, f"uses {path}, which captures launches; policy.graphs is false"


def is_torch_or_language(path: str | None) -> bool:
    """Whether a name is torch's, which has a list, or a kernel language's, whose `compile` is no Python's."""
    return _is_language(path) or _is_torch(path)


def _is_foreign(path: str | None, own: Container[str]) -> bool:
    return not is_torch_or_language(path) and (path or "").split(".")[0] not in own


def _tell(name: str) -> str:
    return f"calls a finished operator ({name}); policy.library_calls is false"


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _is_language(path: str | None) -> bool:
    return path is not None and path.startswith(tuple(f"{name}." for name in LANGUAGES))


def _is_torch(path: str | None) -> bool:
    return path is not None and path.split(".")[0] == "torch"


def _inside_kernels(tree: ast.AST, names: DottedNames) -> set[int]:
    """Nodes of the bodies of functions that nothing but a kernel language's compiler is given."""
    found: set[int] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            paths = [names.known(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
            if any(p and JITS.match(p) for p in paths) and all(_is_language(p) for p in paths):
                found.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    return found


def _imports(node: ast.Import | ast.ImportFrom, own: Container[str]) -> Iterator[str]:
    """Names of NumPy's products, and parts of torch that are not on the list, where they are imported."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        path = f"{module}.{alias.name}" if module else alias.name
        if path.split(".")[0] in own or (isinstance(node, ast.ImportFrom) and node.level):
            continue
        if alias.name == "*":
            continue  # refused as what hides names
        if _is_torch(path):
            if not any(f"torch.{name}.".startswith(f"{path}.") for name in (*_torch_names(), *_dtypes())):
                yield _tell_torch(path)
        elif not _is_language(f"{path}."):
            yield from (_tell(part) for part in sorted(LIBRARY_CALLS.intersection(path.split("."))))


def _torch_names() -> frozenset[str]:
    return ALLOWED_TORCH | TOLERATED_TORCH


def _outside_lists(path: str) -> Iterator[str]:
    """A use of torch, or of the CUDA driver, that is not on its list."""
    root, _, rest = path.partition(".")
    if root == "torch" and not (rest in _torch_names() or rest.split(".")[0] in _dtypes()):
        yield _tell_torch(path)
    if path.startswith("cuda.bindings.driver."):
        name = path.split(".")[3]
        if not (name in DRIVER or name.startswith("CU")):
            yield f"uses {path}; of the driver a kernel may use its types and {', '.join(sorted(DRIVER))}"
    elif root == "cuda" and not _is_language(path):
        yield f"uses {path}; of cuda a kernel may use cuda.bindings.driver, nvrtc and nvjitlink"


def _tell_torch(path: str) -> str:
    allowed = ", ".join(sorted(ALLOWED_TORCH))
    if path == "torch" or any(f"torch.{name}".startswith(f"{path}.") for name in _torch_names()):
        return f"hands the module {path} on, which hides what is used of it; name the functions"
    return f"{_tell(path)}; of torch a kernel may use dtypes, {allowed}"


def _eager(node: ast.AST, names: DottedNames) -> Iterator[str]:
    """Methods and index assignments that run an operator of torch's on a tensor."""
    attribute, base = attribute_of(node), base_of(node)
    if attribute in _operators() and names.known(node) is None and not _is_no_tensor(base, names):
        yield (
            f"calls a finished operator (.{attribute}()); policy.library_calls is false; of a tensor a kernel may use "
            f"shapes, strides, addresses, views and {', '.join(sorted(FILLS))}"
        )
    if attribute == "fn" and names.known(node) is None and not _is_no_tensor(base, names):
        yield "takes the Python function out of a kernel (.fn), which would run as operators of torch's"
    if isinstance(node, ast.ClassDef) and any(_is_torch(names.path(b)) for b in node.bases):
        yield "derives a class from torch, which hides when it computes"
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, ast.Assign | ast.AugAssign) and any(_is_slice(target) for target in targets):
        yield "calls a finished operator (assignment to a slice); policy.library_calls is false; store from a kernel"


def _is_no_tensor(base: ast.expr | None, names: DottedNames) -> bool:
    """Whether it is an object of the workspace's own class, or the limits of a dtype."""
    if isinstance(base, ast.Call):
        return names.known(base.func) in ("torch.finfo", "torch.iinfo")
    return isinstance(base, ast.Name) and base.id in ("self", "cls")


def _is_slice(target: ast.AST | None) -> bool:
    if not isinstance(target, ast.Subscript):
        return False
    return any(isinstance(n, ast.Slice) or _is_ellipsis(n) for n in ast.walk(target.slice))


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


@cache
def _dtypes() -> frozenset[str]:
    import torch  # here, because who only reads the lists above may not load it

    return frozenset(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))


@cache
def _operators() -> frozenset[str]:
    """Everything that this torch's tensors can be told, but for what is on a list above, and for signs."""
    import torch

    named = {name for name in dir(torch.Tensor) if not name.startswith("__")}
    return frozenset(named - VIEWS - QUESTIONS - FILLS - OTHERS)
