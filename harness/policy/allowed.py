"""What source may use of each module: closed lists, for no list of what is forbidden is ever complete.

A name that is not listed is refused with what to do: write it out, or let the case allow it by an entry of
`policy.imports` with a dot, such as `numpy.polyval`, or `numpy.*` for all of numpy. Modules without a list are the
case's own choice: of those every name may be used, but no module that they import themselves.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import ModuleType


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LEADING_OUT = words(
    "gi_code cr_code ag_code f_code f_builtins tb_next gi_yieldfrom cr_await co_code co_names co_consts "
    "obj get_overload _evaluate _cache _cache_file _index_path _flavour sys os posix posixpath gc inspect builtins "
    "importlib ctypes cffi subprocess socket multiprocessing threading functools operator ast np numpy "
    "scipy torch linecache pickle shutil tempfile _getframe f_back f_locals f_globals gi_frame cr_frame "
    "ag_frame tb_frame typingctx targetctx target_descr typing_context target_context _globals _dispatcher _compiler "
    "_type_manager _compile_for_args _make_finalizer __wrapped__ func_code func_id kernel_ir fndesc lookup_globals "
    "lookup_module enable_caching cache_path overloads get_compile_result _compile_for_argtys _cres gufunc_builder "
    "nb_func codegen add_ir_module add_llvm_module create_ir_module create_library get_pointer_to_function "
    "global_dict func_ir type_annotation lifted get_metadata _definitions attrname _unsafe_update_src "
    "get_capture_scope used_global_vals annotation annotation_type _param create_binder device_caches ir_override "
    "raw_src _set_src _get_src _do_compile base_fn func_globals func_closure func_defaults func_dict _rebuild "
    "_reduce_class _reduce_states add_overload _callback_add_timer targetdescr _toplevel_typing_context "
    "cast_python_value _aggregate _tensor_member_fn gscope builtin_namespace module_map _resolve_aggregate_fields "
    "str_to_ty TritonSemantic lang rewriter ast_transformer set_active targetoptions"
)
"""Attributes that lead out of a kernel: to its caller, or to another module through one that imports it."""

STANDARD: Mapping[str, frozenset[str]] = {
    "os": words(
        "environ getenv path.join path.dirname path.basename path.abspath path.realpath path.normpath "
        "path.exists path.isfile path.isdir path.splitext path.sep sep cpu_count sched_getaffinity "
        "sched_setaffinity sched_yield times getpid PathLike fspath"
    ),
    "typing": words(
        "Any Callable Generator ClassVar Concatenate Dict Final FrozenSet Generic Iterable Iterator List "
        "Literal Mapping MutableMapping NamedTuple Never NewType NoReturn Optional ParamSpec Protocol "
        "Self Sequence Set Sized Tuple TypeAlias TypeGuard TypeVar TypedDict Union Annotated AnyStr "
        "SupportsFloat SupportsIndex SupportsInt TYPE_CHECKING assert_never cast final overload override"
    ),
    "functools": words("cache cached_property cmp_to_key lru_cache partial reduce total_ordering wraps"),
    "yaml": words("safe_load YAMLError"),
    "pathlib": words("Path PurePath PurePosixPath PosixPath"),
    "math": words(
        "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees e erf erfc exp "
        "exp2 expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf "
        "isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians "
        "remainder sin sinh sqrt tan tanh tau trunc ulp dist"
    ),
    "operator": words(
        "abs add and_ ceil concat contains countOf eq floordiv ge getitem gt index indexOf inv invert "
        "is_ is_not itemgetter le lshift lt mod mul ne neg not_ or_ pos pow rshift setitem sub truediv "
        "truth xor"
    ),
    "collections": words(
        "ChainMap Counter OrderedDict UserDict UserList defaultdict deque namedtuple abc.Callable "
        "abc.Collection abc.Container abc.Generator abc.Hashable abc.Iterable abc.Iterator abc.Mapping "
        "abc.MutableMapping abc.MutableSequence abc.Sequence abc.Set abc.Sized"
    ),
    "dataclasses": words(
        "dataclass field fields replace astuple asdict is_dataclass InitVar KW_ONLY FrozenInstanceError"
    ),
    "enum": words("Enum IntEnum StrEnum Flag IntFlag auto unique member nonmember"),
    "contextlib": words(
        "contextmanager nullcontext suppress closing ExitStack AbstractContextManager ContextDecorator"
    ),
    "concurrent": words(
        "futures.ThreadPoolExecutor futures.Future futures.as_completed futures.wait "
        "futures.TimeoutError futures.ALL_COMPLETED futures.FIRST_COMPLETED"
    ),
    "threading": words("Thread Lock RLock Event Barrier Condition Semaphore local get_ident get_native_id"),
    "copy": words("copy deepcopy"),
    "itertools": words(
        "accumulate batched chain combinations combinations_with_replacement compress count cycle "
        "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee "
        "zip_longest"
    ),
}
"""Whatever else a case allows: here is what would run code that nobody read."""

MEMORY = words(
    "array asanyarray asarray ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d block "
    "broadcast broadcast_arrays broadcast_shapes broadcast_to column_stack concat concatenate copy "
    "copyto delete diag diagonal dstack empty empty_like expand_dims eye fill_diagonal flip fliplr "
    "flipud frombuffer fromfile fromfunction fromiter full full_like hsplit hstack identity imag insert "
    "matrix_transpose memmap meshgrid moveaxis ndarray ndim newaxis ones ones_like pad permute_dims "
    "ravel real repeat reshape resize roll rollaxis rot90 shape size split array_split squeeze stack "
    "swapaxes take take_along_axis tile transpose tri tril triu unstack vsplit vstack zeros zeros_like "
    "lib.stride_tricks.as_strided lib.stride_tricks.sliding_window_view lib.stride_tricks.broadcast_to "
    "require may_share_memory shares_memory"
)
ELEMENTWISE = words(
    "angle around clip cross diff fix gradient i0 interp isclose iscomplex isneginf isposinf isreal "
    "nan_to_num piecewise place put put_along_axis putmask round select sinc unwrap where choose "
    "compress extract packbits unpackbits vectorize frompyfunc apply_along_axis"
)
REDUCTIONS = words(
    "all allclose amax amin any argmax argmin argpartition argsort argwhere array_equal array_equiv "
    "average bincount count_nonzero cumprod cumsum cumulative_prod cumulative_sum digitize flatnonzero "
    "histogram isin lexsort max mean median min nanargmax nanargmin nancumsum nanmax nanmean nanmedian "
    "nanmin nanprod nansum nanstd nanvar nonzero partition percentile prod ptp quantile searchsorted "
    "sort std sum trace unique var"
)
QUESTIONS = words(
    "arange can_cast common_type dtype e errstate euler_gamma finfo geomspace geterr iinfo index_exp "
    "indices inf isdtype isfortran isscalar issubdtype iterable ix_ linspace logspace min_scalar_type "
    "mgrid nan ndenumerate ndindex nditer ogrid pi promote_types ravel_multi_index result_type s_ "
    "tril_indices triu_indices ufunc unravel_index random.default_rng typing.NDArray typing.ArrayLike "
    "typing.DTypeLike ScalarType True_ False_"
)
ELEMENTWISE_OF_SCIPY = words(
    "cbrt digamma erf erfc erfcinv erfcx erfinv exp10 exp2 expit expm1 exprel gamma gammaln i0 i0e i1 "
    "i1e j0 j1 log1p log_expit log_ndtr logit loggamma ndtr ndtri psi sinc xlog1py xlogy"
)
NUMBA = words(
    "njit jit prange vectorize guvectorize literal_unroll literally typeof optional objmode "
    "typed.List typed.Dict config.NUMBA_NUM_THREADS config.NUMBA_DEFAULT_NUM_THREADS get_num_threads "
    "set_num_threads get_thread_id threading_layer __version__ set_parallel_chunksize "
    "get_parallel_chunksize"
)
NUMBA_TYPES = words(
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 intp uintp intc uintc float32 float64 complex64 "
    "complex128 boolean bool_ void b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8 c8 c16 none double float_ int_ uint "
    "long_ short size_t"
)
NUMBA_TYPE_MAKERS = words("Array Tuple UniTuple List Optional Omitted none")
TRITON = words(
    "jit autotune heuristics Config cdiv next_power_of_2 constexpr_function set_allocator __version__ "
    "JITFunction KernelInterface OutOfResources TensorDescriptor "
    "tools.tensor_descriptor.TensorDescriptor tools.ragged_tma.create_ragged_descriptor "
    "tools.ragged_tma.load_ragged tools.ragged_tma.store_ragged reinterpret CompilationError "
    "compiler.CompiledKernel runtime.jit.JITFunction runtime.driver.active.utils "
    "runtime.driver.active.get_current_target runtime.driver.active.get_current_device "
    "runtime.driver.active.get_current_stream runtime.driver.active.utils.get_device_properties "
    "runtime.driver.active.get_active_torch_device runtime.errors.OutOfResources runtime.OutOfResources "
    "runtime.JITFunction runtime.autotuner.Config runtime.Config compiler.errors.CompilationError "
    "errors.TritonError errors.OutOfResources testing.cdiv"
)
TRITON_LANGUAGES = ("triton.language.", "triton.experimental.gluon.")
"""What is below these says what a kernel does; every name of them may be used, but for what they import themselves."""

IMPORTED_BY_LANGUAGES = (sys.stdlib_module_names - {"math", "random"}) | words(
    "modules module_from_spec module_finder spec knobs wraps contextmanager dataclass cached_property warn Enum "
    "semantic aggregate builtin extern"
)
"""Names of modules and of functions of Python's that submodules of these languages have in them."""

MODULES_OF_LANGUAGES = words(
    "core standard math random semantic extra cuda hip libdevice utils target_info nvidia amd ampere hopper blackwell "
    "_core _layouts _semantic _math _standard"
)
"""Names by which these languages' own modules are called, which are not handed on."""

OF_TORCH = words(
    "trace profile chunk select code timeit torch.random torch.types torch.signal torch.cuda.random "
    "torch.accelerator.random torch.xpu.random torch.fx.traceback"
)
"""Of torch, though a module of Python is called so: names that are none anywhere, and paths that are torch's own."""

BEHIND_TORCH = words(
    "np mp sympy setuptools python_multiprocessing pynvml typing_extensions copymodule _inspect codecache "
    "import_submodule load_library load_inline load _import_module _sympy CUDAPluggableAllocator "
    "change_current_allocator"
)
"""Modules that torch has under other names, and what loads code in it."""

OF_CUDA = words("copy select struct math typing types random")
"""Of cutlass and cuda, though a module of Python is called so."""

BEHIND_CUDA = sys.stdlib_module_names | words("ctypes cffi numpy torch")
"""Modules that cutlass and cuda hand on, by these names or with an underscore before them."""

MODULES_OF_TORCH = words(
    "nn cuda ops backends autograd linalg fft special sparse amp autocast_mode compiler version random signal types "
    "accelerator xpu masked nested distributions profiler func functional cpu mps"
)
"""What lies in torch as a module and runs no text that it is given; other modules of torch are not for a workspace."""

ALSO_OF_TORCH = words("utils.dlpack utils.checkpoint _dynamo.config _inductor.config")
"""Further ones, by their paths."""

OFFERED = words(
    "harness.serving.backends.backend.Backend harness.serving.backends.backend.ServedModel "
    "harness.serving.backends.backend.ChatMessage harness.serving.backends.backend.Mode "
    "harness.serving.backends.backend.ModelDtype "
    "harness.serving.backends.mock_backend.MockBackend "
    "harness.serving.backends.native_function.native_function"
)
"""Of hillclimb itself, whatever policy.imports says: the rest of it loads code, and hands on other modules."""

OFFERED_WITH_LIBRARIES = OFFERED | words("harness.serving.backends.transformers_backend.TransformersBackend")
"""The same where finished operators may be called."""

HANDED_ON_BY_NAME = words(
    "torch torch.nn torch.ops cutlass cutlass.cute cuda cuda.bindings cuda.bindings.driver cuda.bindings.nvrtc "
    "cuda.bindings.nvjitlink"
)
"""Modules without a list, of which nobody could read what is used if a name stood for them."""

NO_LIST_NEEDED = words("__future__ torch cuda cutlass agent harness")
"""Checked elsewhere, or without a name that could be used."""


def problem_with(path: str, allowed: Iterable[str], library_calls: bool) -> str | None:
    """What is wrong with using a foreign name, such as `numpy.matrix`; None where nothing is.

    `allowed` are the entries of policy.imports; `library_calls` says whether finished operators are.
    """
    root, _, rest = path.partition(".")
    if root == "hillclimb":
        return _problem_with_lab(path, OFFERED_WITH_LIBRARIES if library_calls else OFFERED)
    if path in HANDED_ON_BY_NAME or (root == "torch" and path in sys.modules):
        return _handed_on(path)
    dotted = frozenset(entry for entry in allowed if "." in entry)
    if (problem := _leads_on(path, dotted)) is not None:
        return problem
    if root in NO_LIST_NEEDED or f"{root}.*" in dotted or is_listed(path, dotted):
        return None
    known = _lists(library_calls).get(root)
    if known is None:
        return _problem_with_unlisted(path)
    if path.startswith(TRITON_LANGUAGES):
        is_module = path.rpartition(".")[2] in MODULES_OF_LANGUAGES or _is_module_of_triton(path)
        return _problem_with_parts(path) or (_handed_on(path) if is_module else None)
    if is_listed(rest, known):
        return None
    if not rest or f"{path}." in TRITON_LANGUAGES or any(name.startswith(f"{rest}.") for name in known):
        return _handed_on(path)
    return (
        f"uses {path}, which is not on the list of what a kernel may use of {root}; write it out, or let the case "
        f"allow it by the entry {path!r} in policy.imports"
    )


def problem_with_import(path: str, allowed: Iterable[str], library_calls: bool) -> str | None:
    """The same for a name that an import binds, which may be a module that listed names lie in."""
    root, _, rest = path.partition(".")
    if root == "torch":
        return _leads_on(path, frozenset(entry for entry in allowed if "." in entry))
    if path in HANDED_ON_BY_NAME or any(name.startswith(f"{path}.") for name in TRITON_LANGUAGES):
        return None
    if path.startswith(TRITON_LANGUAGES):
        return _problem_with_parts(path)
    names = {f"hillclimb.{name}" for name in (OFFERED_WITH_LIBRARIES if library_calls else OFFERED)}
    names |= {entry for entry in allowed if "." in entry and root != "hillclimb"}
    names |= {f"{root}.{name}" for name in _lists(library_calls).get(root, ())}
    if not rest or any(name.startswith(f"{path}.") for name in names):
        return None
    return problem_with(path, allowed, library_calls)


def _handed_on(path: str) -> str:
    return f"hands the module {path} on, which hides what is used of it; name the functions"


def is_listed(name: str, names: frozenset[str]) -> bool:
    """Whether it, or what it is an attribute of, is one of the names."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in names for end in range(1, len(parts) + 1))


def _module_behind_torch(path: str) -> str | None:
    """The first part of a path by which torch hands on a module of Python's."""
    parts = path.split(".")
    is_operator = parts[1:2] == ["ops"]
    if "torch" in parts[1:]:
        return "torch"
    for end in range(2, len(parts) + 1):
        is_own = is_operator or parts[end - 1] in OF_TORCH or ".".join(parts[:end]) in OF_TORCH
        if parts[end - 1] in BEHIND_TORCH or (parts[end - 1] in sys.stdlib_module_names and not is_own):
            return parts[end - 1]
    return None


@cache
def _modules_of_torch() -> frozenset[str]:
    """Those that a workspace has no use for."""
    import torch  # here, because who only reads the lists may not need it

    found = {module.name for module in pkgutil.iter_modules(torch.__path__)}
    return frozenset(name for name in found if not name.startswith("_")) - MODULES_OF_TORCH


def _module_behind_cuda(path: str) -> str | None:
    """The same of cutlass and cuda."""
    parts = path.split(".")[1:]
    return next((part for part in parts if part.lstrip("_") in BEHIND_CUDA and part not in OF_CUDA), None)


BEHIND: Mapping[str, Callable[[str], str | None]] = {
    "torch": _module_behind_torch,
    "cutlass": _module_behind_cuda,
    "cuda": _module_behind_cuda,
}
"""What tells of a path which other module it leads to, by the module that it begins with."""


def _leads_on(path: str, dotted: frozenset[str]) -> str | None:
    """`dotted` are names that the case allows besides."""
    root, _, rest = path.partition(".")
    part = rest.partition(".")[0]
    is_unlisted = root == "torch" and (part.startswith("_") or part in _modules_of_torch())
    if is_unlisted and not is_listed(rest, ALSO_OF_TORCH) and not is_listed(path, dotted):
        return (
            f"uses {path}, which leads to another module ({part}), not on the list of torch's; write it out, or "
            f"let the case allow it by the entry 'torch.{part}' in policy.imports"
        )
    foreign = BEHIND[root](path) if root in BEHIND else None
    if foreign is None:
        return None
    return f"uses {path}, which leads to another module ({foreign}); import that, where the policy allows it"


def _problem_with_lab(path: str, names: frozenset[str]) -> str | None:
    if is_listed(path.partition(".")[2], names):
        return None
    offered = ", ".join(sorted(name.rpartition(".")[2] for name in names))
    return f"uses {path}, which is no workspace's to use; of hillclimb it may take {offered}"


def _problem_with_unlisted(path: str) -> str | None:
    root, *parts = path.split(".")
    foreign = [part for part in parts if part != root and part in sys.stdlib_module_names | LEADING_OUT]
    if foreign:
        return f"uses {path}, which leads to another module ({foreign[0]}); import that, where the policy allows it"
    return None


def _problem_with_parts(path: str) -> str | None:
    """Of a kernel language: its submodules import what is none of it."""
    foreign = (LEADING_OUT | IMPORTED_BY_LANGUAGES).intersection(path.split(".")[1:])
    if foreign:
        return f"uses {path}, which leads to another module ({min(foreign)})"
    return None


@cache
def _is_module_of_triton(path: str) -> bool:
    """Whether Triton, where it is installed, has a module behind that name, whatever the name is."""
    try:
        import triton.experimental.gluon
        import triton.language  # here, because who only reads the lists may not need it
    except ImportError:
        return False
    value: object = triton
    for part in path.split(".")[1:]:
        # of modules alone: what another object has may be computed when it is asked for
        value = vars(value).get(part) if isinstance(value, ModuleType) else None
    return isinstance(value, ModuleType)


@cache
def _lists(library_calls: bool) -> Mapping[str, frozenset[str]]:
    """By module. Where finished operators are allowed, the libraries that offer them need no list."""
    numba = NUMBA | NUMBA_TYPES | {f"types.{name}" for name in NUMBA_TYPES | NUMBA_TYPE_MAKERS}
    always = {**STANDARD, "numba": numba, "triton": TRITON}
    if library_calls:
        return always
    special = frozenset(f"special.{name}" for name in ELEMENTWISE_OF_SCIPY)
    return {**always, "numpy": _numpy(), "scipy": special}


@cache
def _numpy() -> frozenset[str]:
    """The lists above, its element types, and the ufuncs of single elements: those without a signature."""
    import numpy as np  # here, because who only reads the lists may not need it

    ufuncs = {
        name for name in dir(np) if isinstance(made := getattr(np, name), np.ufunc) and not made.signature
    }
    types = {
        name
        for name in dir(np)
        if isinstance(getattr(np, name), type) and issubclass(getattr(np, name), np.generic)
    }
    return frozenset(MEMORY | ELEMENTWISE | REDUCTIONS | QUESTIONS | ufuncs | types)
