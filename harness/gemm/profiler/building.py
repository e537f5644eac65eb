"""A cutlass_profiler, built from the sources of a CUTLASS.

The sources and their order are those of `tools/library` and `tools/profiler` there. Left out are cuBLAS, and the
reference operations of types that a shape cannot have, which alone took most of the time.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from errno import EACCES, EISDIR
from functools import cached_property
from pathlib import Path

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.compiler.cutlass import Cutlass, Headers
from hillclimb.harness.gemm.compiler.drafts import Draft
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import DIAGNOSTICS, Build, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import Toolkit
from hillclimb.harness.gemm.folder import sha256_of
from hillclimb.harness.gemm.processes import ProcessGroups
from hillclimb.harness.gemm.profiler.origin import ProfilerOrigin, origin_file
from hillclimb.harness.gemm.shape import Dtype

BINARY = "cutlass_profiler"

KERNELS: dict[Dtype, str] = {
    "bf16": "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_*bf16_*_tnn_align8*",
    "f16": "cutlass3x_sm90_tensorop_gemm_f16_f16_f32_*f16_*_tnn_align8*",
    "fp8": "cutlass3x_sm90_tensorop_gemm_e4m3_e4m3_f32_bf16_bf16_*_tnn_align16*",
    "int8": "cutlass3x_sm90_tensorop_gemm_s8_s8_s32_*s32_*_tnn_align16*",
}
"""Those that a sweep of such shapes runs, by their names. Kernels for operands that are aligned less are left out."""

LIBRARY = ("handle.cu", "manifest.cpp", "operation_table.cu", "singleton.cu", "util.cu")
REDUCTIONS = ("reduction_device", "init_reduction_operations")
REFERENCES = ("s8_s8_s32", "fp8in_bf16out", "fp32out", "fp_other")
"""Of the results that a shape's kernels write."""

INCLUDES = (
    *("include", "tools/util/include", "tools/library/include", "tools/library/src"),
    *("tools/library/src/reference", "tools/library/src/reduction"),
    *("tools/profiler/include", "tools/profiler/src"),
)
GENERATE_SECONDS, LINK_SECONDS = 600.0, 600.0

INITIALIZER = re.compile(r"^void (initialize_\w+)\(Manifest &manifest\) \{", re.MULTILINE)
MANIFEST = """#include "cutlass/library/library.h"
#include "cutlass/library/manifest.h"

namespace cutlass {{
namespace library {{

{declarations}

void {name}(Manifest &manifest) {{
{calls}
}}

}}
}}
"""


@dataclass(frozen=True)
class ProfilerBinary:
    """What was built."""

    path: Path
    kernels: tuple[str, ...]
    failed: tuple[Build, ...]
    """Of kernels that are not in it, for they did not compile."""


@dataclass(frozen=True)
class ProfilerBuilding:
    """One profiler: the kernels of these names, for one architecture."""

    cutlass: Cutlass
    toolkit: Toolkit
    store: Path
    """Folder to work in."""
    patterns: tuple[str, ...]
    """Names of kernels, with * for anything."""
    architecture: str = "90a"
    level: str = ""
    """How many CUTLASS instantiates: four digits, or max; its own choice without one."""

    @property
    def headers(self) -> Headers:
        """All that its sources include."""
        return self.cutlass.headers_in(*INCLUDES)

    @cached_property
    def generated(self) -> dict[str, str]:
        """Name of the file -> source, of the kernels and of what lists them.

        Raises UsageError where the generator fails, or where no kernel has such a name.
        """
        draft = Draft(self.store)
        try:
            self._generate(draft.folder)
            sources = (draft.folder / "generated").rglob("*")
            return {path.name: path.read_text() for path in sorted(sources) if path.suffix in (".cu", ".cpp")}
        finally:
            draft.remove()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(name.removesuffix(".cu") for name in self.generated if _is_kernel(name))

    def build(self, run: CompileRun, target: Path) -> ProfilerBinary:
        """Compiles what the store has not, and links it to `target`. A kernel that does not compile is left out.

        Raises MachineError where anything else does not, and UsageError where the target cannot be written.
        """
        _check_target(target)
        sources = {**self._own_sources(), **self.generated}
        builds = dict(zip(sources, run(map(self.job, sources, sources.values())), strict=True))
        failed = {name: build for name, build in builds.items() if not build.is_built and _is_kernel(name)}
        if len(failed) == len(self.kernels):
            told = next(iter(failed.values())).folder / DIAGNOSTICS
            raise MachineError(f"none of {len(failed)} kernels compiles; read {told}")
        stubs = {name: _manifest_of(INITIALIZER.findall(sources[name])[0], ()) for name in failed}
        builds.update(zip(stubs, run(map(self.job, stubs, stubs.values())), strict=True))
        for build in builds.values():
            if not build.is_built:
                raise MachineError(f"{build.record.name} does not compile; read {build.folder / DIAGNOSTICS}")
        self._link([build.output for build in builds.values()], target)
        kept = tuple(name.removesuffix(".cu") for name in builds if _is_kernel(name) and name not in failed)
        found = ProfilerBinary(target, kept, tuple(failed.values()))
        origin_file(target).write_text(self._origin(found).model_dump_json(by_alias=True, indent=1) + "\n")
        return found

    def job(self, name: str, source: str) -> CompileJob:
        """For one of its files."""
        target = f"arch=compute_{self.architecture},code=sm_{self.architecture}"
        flags = ("-std=c++17", "-O2", "-w", f"-gencode={target}", "--expt-relaxed-constexpr")
        defines = ("-DNDEBUG", "-DCUTLASS_ENABLE_TENSOR_CORE_MMA=1")
        return CompileJob(name, source, (*flags, *defines))

    def _origin(self, found: ProfilerBinary) -> ProfilerOrigin:
        return ProfilerOrigin(
            schema=1,
            binary_sha256=sha256_of(found.path),
            software={
                "cutlass": self.cutlass.version,
                "cuda": self.toolkit.release,
                "compiler": self.toolkit.version,
            },
            kernels=found.kernels,
            failed=tuple(build.record.name.removesuffix(".cu") for build in found.failed),
        )

    def _own_sources(self) -> dict[str, str]:
        """Of CUTLASS's library and of the profiler."""
        tools = self.cutlass.source / "tools"
        names = [f"initialize_gemm_reference_operations_{reference}" for reference in REFERENCES]
        paths = [
            *(tools / "library/src" / name for name in LIBRARY),
            *(tools / f"library/src/reduction/{name}.cu" for name in REDUCTIONS),
            *(tools / f"library/src/reference/gemm_{name}.cu" for name in REFERENCES),
            *sorted(path for path in (tools / "profiler/src").iterdir() if path.suffix in (".cu", ".cpp")),
        ]
        references = _manifest_of("initialize_reference_operations", names)
        return {"references.cu": references, **{path.name: path.read_text() for path in paths}}

    def _generate(self, folder: Path) -> None:
        level = ("--instantiation-level", self.level) if self.level else ()
        command = [
            *(sys.executable, str(self.cutlass.package / "generator.py"), "--operations=gemm"),
            *("--architectures", self.architecture, "--cuda-version", self.toolkit.release),
            *("--kernels", ",".join(self.patterns), "--curr-build-dir", str(folder)),
            *("--disable-cutlass-package-imports", "--log-level=error", *level),
        ]
        try:
            with ProcessGroups() as groups:
                status, told = groups.run(command, GENERATE_SECONDS, cwd=folder)
        except TimeoutError:
            raise UsageError(f"CUTLASS lists its kernels for longer than {GENERATE_SECONDS:g} s") from None
        if status:
            last = told.strip().rpartition("\n")[2]
            raise UsageError(f"CUTLASS's generator fails ({last}); run it yourself: {' '.join(command)}")
        if not any(_is_kernel(path.name) for path in folder.rglob("*.cu")):
            raise UsageError(
                f"CUTLASS {self.cutlass.version} has no kernel for sm_{self.architecture} of the name "
                f"{', '.join(self.patterns)}; a name is such as {KERNELS['bf16']}"
            )

    def _link(self, objects: Sequence[Path], target: Path) -> None:
        draft = Draft(self.store)
        binary = draft.folder / BINARY
        command = [str(self.toolkit.nvcc), "-o", str(binary), *(str(path.absolute()) for path in objects)]
        try:
            with ProcessGroups() as groups:
                status, told = groups.run(
                    command,
                    LINK_SECONDS,
                    cwd=draft.folder,
                    env={**os.environ, "TMPDIR": str(draft.folder)},
                )
            if status:
                raise MachineError(f"the profiler does not link: {told.strip()[-2000:]}")
            _move(binary, target)
        except TimeoutError:
            raise MachineError(
                f"the profiler is linked for longer than {LINK_SECONDS:g} s; the same command tries again"
            ) from None
        finally:
            draft.remove()


def _check_target(target: Path) -> None:
    """Before anything is compiled for it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(EACCES, "its folder cannot be written")
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written ({error.strerror}); give --output another file"
        ) from None


def _move(binary: Path, target: Path) -> None:
    """Also to another file system; nobody sees half of it."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.move(binary, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _is_kernel(name: str) -> bool:
    """By the name of its file: the others list kernels, or are not generated."""
    return name.startswith("cutlass") and not name.startswith("cutlass_profiler")


def _manifest_of(name: str, calls: Sequence[str]) -> str:
    """A function of this name that adds to a manifest what the others do."""
    declarations = "\n".join(f"void {call}(Manifest &manifest);" for call in calls)
    body = "\n".join(f"  {call}(manifest);" for call in calls)
    return MANIFEST.format(name=name, declarations=declarations, calls=body)
