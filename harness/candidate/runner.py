"""Runs inside the sandbox: the only code that imports a workspace.

`python -m hillclimb.harness.candidate.runner SOCKET LOG`.

Nothing said from here decides anything: the judge reads the clock, holds the reference and looks at the
buffers itself. Whatever the workspace breaks in this process, it breaks only for itself.

    judge says   load     workspace, entry, LaunchSpec, process filter           {"ok": true} or a fault
                 compile  problems: name -> arrays and attributes, parameters    {"ok": true, "kernels": [...], ...}
                 parameters  layout + descriptor                                 {"ok": true}
                 map      arena, layout + descriptor                             {"ok": true}
                 call     arena, first, count                                    {"ok": true, "ns": own clock}
                 capture  arena, runs: (first, count) of each                    {"ok": true}
                 lead     arena, first, count                                    {"ok": true, "ns"}, then waits spinning
                 go       first, count, fed, on the arena of the lead-in         {"ok": true, "ns": device's clock}
                 profile  arena, first, count                                    {"ok": true, "rows": profiler's}
                 lanes    arena, first, count                                    {"ok": true, "lanes": lanes.Tally's}
                 seal     process filter                                         {"ok": true}
                 unmap    arena                                                  {"ok": true}
    a fault is   {"fault": a key of process.FAULTS, "text": traceback's end}
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from importlib.machinery import SOURCE_SUFFIXES, FileFinder
from pathlib import Path
from typing import Any

from hillclimb.harness.candidate import native_kernel
from hillclimb.harness.candidate.profiler import Profiler, ProfileRow
from hillclimb.harness.candidate.slots import (
    Kernel,
    Slots,
    host_parameters,
    numpy_slots,
    numpy_view,
    torch_slots,
    torch_view,
)
from hillclimb.harness.channel import wire
from hillclimb.harness.channel.layout import CallSignature, Shapes, SlotLayout, read_attributes
from hillclimb.harness.channel.process_filter import load_filter
from hillclimb.harness.channel.source_loader import SourceLoader

WireMessage = dict[str, Any]


class Runner:
    """One workspace's kernel and the arenas it was handed. Every method takes a message's fields, and answers."""

    def __init__(self) -> None:
        self._arenas: dict[int, Slots] = {}
        self._kernel: Kernel | None = None
        self._profiler: Profiler | None = None
        self._tensors, self._launch = "numpy", "eager"
        self._lead_in_arena, self._architecture = 0, 0
        self._workspace = ""

    def load(
        self,
        workspace: str,
        entry: str,
        tensors: str,
        launch: str,
        preload: list[str],
        architecture: int,
        kernels: str,
        watched: bool,
        walled: bool,
        flags: list[str],
        process_filter: str,
    ) -> WireMessage:
        self._tensors, self._launch, self._architecture = tensors, launch, architecture
        self._workspace = workspace
        copy_kernel_cache(kernels)
        if watched and tensors != "cuda":
            self._profiler = Profiler(workspace)
            self._profiler.adopt_threads()
        for name in preload:
            importlib.import_module(name)
        if "numba" in sys.modules:
            from hillclimb.harness.candidate.wall.numba_signatures import restrict_signatures

            restrict_signatures()
        if walled:
            from hillclimb.harness.candidate.wall.library_wall import block_libraries

            block_libraries(workspace)
        if tensors == "torch" and "triton" in preload:
            from hillclimb.harness.candidate import interpreter_fixes

            interpreter_fixes.apply_fixes()
        if tensors == "meta":
            from hillclimb.harness.candidate import offline_compiler

            offline_compiler.use_compile_only_driver(architecture)
        elif native_kernel.is_native(entry):
            self._tensors = "native"
            library = native_kernel.build_library(Path(workspace), entry, flags)
            load_filter(bytes.fromhex(process_filter))
            self._kernel = native_kernel.open_kernel(library, entry)
            return {}
        elif tensors != "cuda":  # a compiler for a GPU is a process, so its kernels are sealed later
            load_filter(bytes.fromhex(process_filter))
        self._kernel = import_kernel(workspace, entry)
        if tensors == "cuda":
            from hillclimb.harness.candidate.cuda_slots import create_context

            create_context()
        return {}

    def parameters(self, layout: WireMessage, descriptor: int) -> WireMessage:
        assert self._kernel is not None
        given = self._parameters(descriptor, SlotLayout.from_json(layout))
        self._kernel = made_of(self._kernel, given)
        return {}

    def _parameters(self, descriptor: int, layout: SlotLayout) -> dict[str, Any]:
        if self._tensors in ("numpy", "torch"):
            return host_parameters(descriptor, layout, numpy_view if self._tensors == "numpy" else torch_view)
        from hillclimb.harness.candidate.cuda_slots import cuda_parameters  # needs the driver's bindings

        return cuda_parameters(descriptor, layout)

    def compile(self, problems: dict[str, WireMessage], parameters: Shapes = ()) -> WireMessage:
        from hillclimb.harness.candidate import offline_compiler

        assert self._kernel is not None
        kernel = partial(call_made, self._kernel, parameters) if parameters else self._kernel
        signatures = {
            name: CallSignature(told["arrays"], read_attributes(told["attributes"]))
            for name, told in problems.items()
        }
        return offline_compiler.compile_only(kernel, signatures, self._architecture)

    def map(self, arena: int, layout: WireMessage, descriptor: int) -> WireMessage:
        self._arenas[arena] = self._slots(descriptor, SlotLayout.from_json(layout))
        return {}

    def unmap(self, arena: int) -> WireMessage:
        self._arenas.pop(arena).close()
        return {}

    def call(self, arena: int, first: int, count: int) -> WireMessage:
        assert self._kernel is not None
        return {"ns": self._arenas[arena].call(self._kernel, first, count)}

    def capture(self, arena: int, runs: list[tuple[int, int]]) -> WireMessage:
        assert self._kernel is not None
        for first, count in runs:
            self._arenas[arena].capture(self._kernel, first, count)
        return {}

    def lead(self, arena: int, first: int, count: int) -> WireMessage:
        assert self._kernel is not None
        self._lead_in_arena = arena
        return {"ns": self._arenas[arena].launch(self._kernel, first, count)}

    def go(self, first: int, count: int, fed: int) -> WireMessage:
        assert self._kernel is not None
        return {"ns": self._arenas[self._lead_in_arena].launch(self._kernel, first, count, fed)}

    def profile(self, arena: int, first: int, count: int) -> WireMessage:
        return {"rows": self._profile(self._arenas[arena], first, count)}

    def lanes(self, arena: int, first: int, count: int) -> WireMessage:
        from hillclimb.harness.candidate.lane_counter import counting_lanes

        assert self._kernel is not None
        with counting_lanes(self._workspace) as tally:
            self._arenas[arena].call(self._kernel, first, count)
        return {"lanes": tally.to_json()}

    def seal(self, process_filter: str) -> WireMessage:
        load_filter(bytes.fromhex(process_filter))
        return {}

    def _slots(self, descriptor: int, layout: SlotLayout) -> Slots:
        if self._tensors == "numpy":
            return numpy_slots(descriptor, layout)
        if self._tensors == "native":
            return native_kernel.native_slots(descriptor, layout)
        if self._tensors == "torch":
            return torch_slots(descriptor, layout)
        from hillclimb.harness.candidate.cuda_slots import CudaSlots  # needs the driver's bindings

        return CudaSlots(descriptor, layout, "graph" if self._launch == "graph" else "eager")

    def _profile(self, slots: Slots, first: int, count: int) -> list[ProfileRow]:
        assert self._kernel is not None
        work = partial(slots.call, self._kernel, first, count)
        if self._profiler is not None:
            return self._profiler.measure(work, count)
        from hillclimb.harness.candidate import gpu_profiler

        return gpu_profiler.measure(work, count)


def serve(end: socket.socket) -> None:
    """Answer until the judge closes the socket."""
    runner = Runner()
    while True:
        message, descriptors = wire.receive(end, most_descriptors=1)
        op = message.pop("op")
        try:
            answer = getattr(runner, op)(**message, **_descriptor(descriptors))
            answer.setdefault("ok", "fault" not in answer)
        except MemoryError:
            answer = {"fault": "out_of_memory", "text": _traceback()}
        except Exception as error:  # noqa: BLE001 - workspace code may raise anything; it is reported, never handled
            answer = {"fault": _fault(op, error), "text": _traceback()}
        wire.send(end, answer)
        if op == "lead":
            wire.spin(end)


def _descriptor(descriptors: list[int]) -> dict[str, int]:
    return {"descriptor": descriptors[0]} if descriptors else {}


def _fault(op: str, error: Exception) -> str:
    # torch says so in one way, its streams, its graphs and Triton in others
    said = "".join(traceback.format_exception_only(error))
    if type(error).__name__ == "OutOfMemoryError" or ("CUDA" in said and "out of memory" in said):
        return "out_of_memory"
    if isinstance(error, native_kernel.CompilationError):
        return "does_not_compile"
    if isinstance(error, native_kernel.ForeignSymbolError):
        return "policy"
    return "does_not_load" if op in ("load", "parameters") else "raised"


def import_kernel(workspace: str, entry: str) -> Kernel:
    """The function named by `entry`, out of a workspace imported for the first time."""
    file, function = entry.split(":")
    sys.path_hooks.insert(0, partial(_find_sources, workspace))
    sys.path.insert(0, workspace)
    name, path = Path(file).stem, str(Path(workspace, file))
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kernel: Kernel = getattr(module, function)
    return kernel


def _find_sources(workspace: str, folder: str) -> FileFinder:
    """For the import of a workspace's own modules; of any other folder, ImportError, and the next finder is asked."""
    if not Path(folder).resolve().is_relative_to(Path(workspace).resolve()):
        raise ImportError(f"{folder} is not in the workspace")
    return FileFinder(folder, (SourceLoader, SOURCE_SUFFIXES))


def made_of(entry: Kernel, parameters: Mapping[str, Any]) -> Kernel:
    """What an entry returns for its parameters. Raises TypeError where that is no kernel."""
    kernel = entry(**parameters)
    if not callable(kernel):
        raise TypeError(
            f"the entry was called with the parameters, and returned no function: {kernel!r}"[:200]
        )
    return kernel


def call_made(entry: Kernel, parameters: Shapes, /, *arrays: object, **attributes: object) -> None:
    """Call what an entry returns for parameters without contents, made anew for each call."""
    from hillclimb.harness.candidate.offline_compiler import without_contents

    made_of(entry, without_contents(parameters))(*arrays, **attributes)


def copy_kernel_cache(folder: str) -> None:
    """Point Triton's cache at the scratch folder, with a copy of what was compiled before, if anything was."""
    cache = Path(os.environ["TMPDIR"], "triton")
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    for path in Path(folder).rglob("*") if folder else ():
        if path.is_file():
            copy = cache / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def _traceback() -> str:
    return traceback.format_exc(limit=-6)[-4000:]


def main() -> None:
    end, log = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        serve(end)
    except wire.WireError:
        os._exit(0)
    except SystemExit as leaving:
        print(leaving.code, file=sys.stderr, flush=True)
        os._exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
    except BaseException:  # noqa: BLE001 - whatever ends it, the judge is to see it gone at once: no teardown
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
