"""Names of kernels: what a workspace defines, and whether one that ran on a device is called as one of these.

A kernel is the workspace's own where the workspace defines a function of that name, and each namespace that it is in,
and no vendor's or framework's kernels are called so; fills and copies are memory. Everything else is a framework's or a
vendor's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.channel.profile_limits import CUT

SOURCES = (".py", ".cu", ".cuh", ".h", ".hpp", ".ptx")

_BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
"""Up to three deep, as those of an attribute are."""

DEFINED = re.compile(
    rf"\bdef\s+(\w+)|\.entry\s+([\w$]+)"
    rf"|__global__\b(?:(?!__global__)[^;{{}}()]|{_BRACKETS}){{0,400}}?\b(?!__\w+__\s*\()(\w+)\s*\(",
    re.ASCII,
)
"""Functions that may be kernels: of Python (Triton, CuTe), of CUDA C++, of PTX."""

MEMORY = re.compile(
    r"^\[?(CUDA )?mem(cpy|set)\b|\bFillFunctor<|^gaps \(nothing runs on the device\)$", re.IGNORECASE
)
"""Copies and fills, by the driver or as torch.zeros makes them, and the time in which nothing ran."""

COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""Of C++. In Python it takes a floor division for one, which defines nothing."""

NAMESPACE = re.compile(
    r"\bnamespace\s+((?:inline\s+)?[A-Za-z_]\w*(?:\s*::\s*(?:inline\s+)?[A-Za-z_]\w*)*)\s*\{", re.ASCII
)

VENDORS = re.compile(
    r"nvjet|sm\d+_xmma|(maxwell|volta|turing|ampere)_\w*(gemm|cudnn)|cublas|cudnn|cutlass|cusparse|nccl|magma_"
    r"|gemv2[nt]_|gemvnsp|gemmk1_|gemmsn_|[sdhczi]+gemm_(largek|\d+x)|splitkreduce|reduce_1block|dot_kernel|axpy_kernel_val"
    r"|trsm_left|fmha_cutlass|flash_fwd|flash_bwd|implicit_convolve|vector_fft|triton_(poi|per|red|tem)_"
    r"|(at|c10|caffe2|torch|native|pytorch_flash|cub|thrust|cute|std|internal|gemvx)$",
    re.IGNORECASE,
)
"""How kernels of libraries, and their namespaces, begin or are called; to define one so would only hide a library's."""

CUTE = "kernel_cutlass_"
"""What CuTe DSL puts before the name of a function that it compiles."""


@dataclass(frozen=True)
class DefinedNames:
    """What the files of a workspace define: functions, and namespaces of C++."""

    functions: frozenset[str]
    namespaces: frozenset[str]

    def has(self, kernel: str) -> bool:
        """Whether a kernel is called as one of these functions, in namespaces that are defined here as well."""
        *namespaces, name = qualified_name(kernel)
        if any(VENDORS.match(part) for part in (*namespaces, name)):
            return False
        return name in self.functions and self.namespaces.issuperset(namespaces)


def defined_names(workspace: Path, files: Iterable[str] | None = None) -> DefinedNames:
    """Of all sources of a workspace, whatever their folder; or of these files, by their paths below it."""
    found = workspace.rglob("*") if files is None else map(workspace.joinpath, files)
    paths = (path for path in found if path.suffix in SOURCES and path.is_file() and not path.is_symlink())
    texts = [path.read_text(errors="replace") for path in paths]
    texts += [COMMENT.sub(" ", text) for text in texts]
    functions = {name for text in texts for found in DEFINED.findall(text) for name in found if name}
    spaces = {part for text in texts for found in NAMESPACE.findall(text) for part in found.split("::")}
    namespaces = {part.split()[-1] for part in spaces}
    for name in [name for name in functions if name.startswith("_Z")]:  # an entry of PTX
        *within, plain = qualified_name(name)
        functions.add(plain)
        namespaces.update(within)
    return DefinedNames(frozenset(functions), frozenset(namespaces))


def qualified_name(kernel: str) -> list[str]:
    """The namespaces and the name of a plain, a demangled or a mangled function; [""] for what is none of them."""
    if kernel.startswith("_Z"):
        return _mangled_name(kernel)
    found = re.match(r"(?:void )?((?:[\w$]+::)*[\w$]+)", kernel, re.ASCII)
    if found is None:
        return [""]
    rest = kernel[found.end() :]
    if rest.startswith("<"):
        rest = rest[_bracket_end(rest) :]
    return found[1].split("::") if not rest or rest.startswith("(") else [""]


def _bracket_end(text: str) -> int:
    """Where the template arguments at its beginning end; the middle of a long name was cut out."""
    depth = 0
    for at, letter in enumerate(text):
        if text.startswith(CUT, at):
            return len(text)
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if not depth:
            return at + 1
    return len(text)


def _mangled_name(kernel: str) -> list[str]:
    """By the Itanium ABI: lengths and names, after an N where there are namespaces, or an L of a static function."""
    nested, parts = kernel[2:3] == "N", list[str]()
    rest = kernel[3 if nested else 2 :].removeprefix("L")
    while found := re.match(r"[1-9]\d*", rest):
        end = found.end() + int(found[0])
        parts.append(rest[found.end() : end])
        rest = rest[end:]
        if not nested:
            break
    return parts or [""]


def foreign_kernels(names: Iterable[str], own: DefinedNames) -> Iterator[str]:
    """Those that are neither memory's nor the workspace's."""
    return (name for name in names if not MEMORY.search(name) and not _is_own(name, own))


def _is_own(kernel: str, own: DefinedNames) -> bool:
    if kernel.startswith(CUTE):
        return any(kernel.startswith(f"{CUTE}{name}_") for name in own.functions if not VENDORS.match(name))
    return own.has(kernel)
