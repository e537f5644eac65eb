"""Kernels of many parameters, compiled twelve to a file; a file that fails is divided until only the faulty ones do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.harness.gemm.compiler.cutlass import Cutlass
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import DIAGNOSTICS, Build, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import Toolkit
from hillclimb.harness.gemm.generator.catalog import (
    LIBRARIES,
    GeneratedKernel,
    KernelCatalog,
    write_catalog,
)
from hillclimb.harness.gemm.generator.point import KernelPoint
from hillclimb.harness.gemm.generator.source import grouped, render

SourceFile = tuple[KernelPoint, ...]


@dataclass
class KernelBuilding:
    """One set of kernels, for one architecture."""

    cutlass: Cutlass
    toolkit: Toolkit
    architecture: str = "90a"
    _libraries: dict[str, Path] = field(default_factory=dict)

    def build(self, run: CompileRun, points: Iterable[KernelPoint], folder: Path) -> KernelCatalog:
        """Compiles what the store has not, and writes the catalog of all to the folder.

        Raises MachineError by the machine's fault, not for a kernel that does not compile.
        """
        chosen = list(points)
        found: dict[str, GeneratedKernel] = {}
        files: Sequence[SourceFile] = grouped(chosen)
        while files:
            builds = run(map(self.job, files))
            found.update(
                (one.point.name, one)
                for file, build in zip(files, builds, strict=True)
                if build.is_built or len(file) == 1
                for one in self._kernels(file, build)
            )
            files = [half for file in files if file[0].name not in found for half in _halves(file)]
        catalog = KernelCatalog(
            schema=1,
            architecture=self.architecture,
            software={
                "cutlass": self.cutlass.version,
                "cuda": self.toolkit.release,
                "compiler": self.toolkit.version,
            },
            kernels=tuple(found[point.name] for point in chosen),
        )
        write_catalog(folder, catalog, list(self._libraries.items()))
        return catalog

    def job(self, points: SourceFile) -> CompileJob:
        """For one file."""
        target = f"-gencode=arch=compute_{self.architecture},code=sm_{self.architecture}"
        flags = ("-std=c++17", "-O2", "-w", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xptxas=-v", target)
        others = f" and {len(points) - 1} like it" if len(points) > 1 else ""
        return CompileJob(points[0].name + others, render(points), flags, "shared")

    def _kernels(self, file: SourceFile, build: Build) -> list[GeneratedKernel]:
        diagnostics = str((build.folder / DIAGNOSTICS).absolute())
        if not build.is_built:
            return [
                GeneratedKernel(point=point, outcome=build.record.outcome, diagnostics=diagnostics)
                for point in file
            ]
        library = f"{build.folder.name}.so"
        self._libraries[library] = build.output
        return [self._kernel(point, build, f"{LIBRARIES}/{library}", diagnostics) for point in file]

    def _kernel(self, point: KernelPoint, build: Build, library: str, diagnostics: str) -> GeneratedKernel:
        """Its own facts: the symbol of its device code has its name."""
        facts = [one for one in build.record.kernels if f"{point.name}_kernel" in one.symbol]
        return GeneratedKernel(
            point=point,
            outcome="built",
            library=library,
            registers=max((one.registers for one in facts), default=0),
            spill_bytes=sum(one.spill_bytes for one in facts),
            losses=tuple(dict.fromkeys(loss for one in facts for loss in one.losses)),
            diagnostics=diagnostics,
        )


def _halves(file: SourceFile) -> tuple[SourceFile, SourceFile]:
    middle = len(file) // 2
    return file[:middle], file[middle:]
