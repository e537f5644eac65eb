"""Kernels of many parameters, compiled twelve to a file; a file that fails is divided until only the faulty ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.harness.errors import MachineError
from hillclimb.harness.gemm.compiler.cutlass import Cutlass
from hillclimb.harness.gemm.compiler.parallel import CompileEnd, CompileRun, raise_any
from hillclimb.harness.gemm.compiler.store import DIAGNOSTICS, Build, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import Toolkit
from hillclimb.harness.gemm.folder import locked
from hillclimb.harness.gemm.generator.catalog import (
    ARCHITECTURE,
    LIBRARIES,
    GeneratedKernel,
    KernelCatalog,
    Library,
    write_catalog,
)
from hillclimb.harness.gemm.generator.source import grouped, render
from hillclimb.harness.gemm.generator.types import AnyPoint

SourceFile = tuple[AnyPoint, ...]


@dataclass
class KernelBuilding:
    """One set of kernels. `watch` is told, in words, of each file that was compiled."""

    cutlass: Cutlass | None
    """None where no kernel needs it."""
    toolkit: Toolkit
    watch: Callable[[str], None] = lambda _: None
    _kernels: dict[AnyPoint, GeneratedKernel] = field(default_factory=dict)
    _faults: dict[AnyPoint, MachineError] = field(default_factory=dict)
    _libraries: dict[str, Library] = field(default_factory=dict)

    def build(self, run: CompileRun, points: Iterable[AnyPoint], folder: Path) -> KernelCatalog:
        """Compiles what the store has not, and writes the catalog of all to the folder.

        Raises UsageError where another process uses the folder, and MachineError for kernels that the machine's fault
        kept from being compiled, after it wrote the catalog of the others. Without any other, what was there stays.
        """
        chosen = list(points)
        with locked(folder):
            self._compile(run, chosen)
            if not self._kernels:
                raise_any(list(self._faults.values()))
            catalog = KernelCatalog(
                schema=3,
                architecture=ARCHITECTURE,
                software={
                    **({"cutlass": self.cutlass.version} if self.cutlass else {}),
                    "cuda": self.toolkit.release,
                    "compiler": self.toolkit.version,
                },
                kernels=tuple(self._kernels[point] for point in chosen if point in self._kernels),
            )
            write_catalog(folder, catalog, list(self._libraries.values()))
        raise_any(list(self._faults.values()))
        return catalog

    def job(self, points: SourceFile) -> CompileJob:
        """For one file."""
        target = f"-gencode=arch=compute_{ARCHITECTURE},code=sm_{ARCHITECTURE}"
        flags = ("-std=c++17", "-O2", "-w", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xptxas=-v", target)
        others = f" and {len(points) - 1} like it" if len(points) > 1 else ""
        return CompileJob(points[0].name + others, render(points), flags, "shared")

    def _compile(self, run: CompileRun, points: list[AnyPoint]) -> None:
        """The halves of files that fail are files of the next round."""
        files = grouped(points)
        while files:
            jobs = {self.job(file): file for file in files}
            files = []
            with closing(run.ends(jobs)) as ends:
                for end in ends:
                    file = jobs[end.job]
                    is_divided = not self._settle(file, end.found)
                    if is_divided:
                        files += _halves(file)
                    if not end.is_kept:
                        self._tell(end, len(points), is_divided=is_divided)

    def _settle(self, file: SourceFile, found: Build | MachineError) -> bool:
        """Whether it says something of each kernel."""
        if isinstance(found, Build) and found.is_built:
            library = Library(f"{found.folder.name}.so", found.output, found.record.output_sha256)
            self._libraries[library.name] = library
            self._kernels.update((point, _built(point, found, library)) for point in file)
        elif len(file) > 1:
            return False
        elif isinstance(found, Build):
            diagnostics = str((found.folder / DIAGNOSTICS).absolute())
            self._kernels[file[0]] = GeneratedKernel(
                point=file[0], outcome=found.record.outcome, diagnostics=diagnostics
            )
        else:
            self._faults[file[0]] = found
        return True

    def _tell(self, end: CompileEnd, total: int, *, is_divided: bool) -> None:
        done = len(self._kernels) + len(self._faults)
        self.watch(f"{done} of {total} kernels: {end}" + (", and is divided" if is_divided else ""))


def _built(point: AnyPoint, build: Build, library: Library) -> GeneratedKernel:
    """With its own facts: the symbol of its device code has its name."""
    facts = [one for one in build.record.kernels if f"{point.name}_kernel" in one.symbol]
    return GeneratedKernel(
        point=point,
        outcome="built",
        library=f"{LIBRARIES}/{library.name}",
        library_sha256=library.sha256,
        registers=max((one.registers for one in facts), default=0),
        spill_bytes=sum(one.spill_bytes for one in facts),
        losses=tuple(dict.fromkeys(loss for one in facts for loss in one.losses)),
        diagnostics=str((build.folder / DIAGNOSTICS).absolute()),
    )


def _halves(file: SourceFile) -> tuple[SourceFile, SourceFile]:
    middle = len(file) // 2
    return file[:middle], file[middle:]
