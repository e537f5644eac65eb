"""The process of one provider: `python -m hillclimb.harness.gemm.providers.worker cublas`.

It answers on what was its standard output; whatever else is printed goes to the standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import torch

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.bench.messages import WorkerAnswer, WorkerAsk
from hillclimb.harness.gemm.providers.problem import ShapeProblem
from hillclimb.harness.gemm.providers.provider import Launch, Provider, RefiningProvider, UnsupportedError

PROVIDERS = {
    "cublas": ("cublas", "Cublas"),
    "cublaslt": ("cublaslt", "CublasLt"),
    "triton": ("triton_matmul", "TritonMatmul"),
    "cute_dsl": ("cute_dsl", "CuteDsl"),
    "generated": ("generated", "Generated"),
}
"""Name -> module beside this one, and its class."""

NO_PDL = "--no-pdl"


class ProviderWorker:
    """One provider, and the shape that it has."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.problem: ShapeProblem | None = None
        self._launches: dict[str, Launch] = {}

    def answer(self, ask: WorkerAsk) -> WorkerAnswer:
        """Whatever a kernel does to this process, short of ending it, is told."""
        answer = self._answer(ask)
        if answer.fault and ask.action == "prepare" and not answer.is_broken:
            self._forget()  # other providers may need the memory
        return answer

    def _answer(self, ask: WorkerAsk) -> WorkerAnswer:
        try:
            return self._do(ask)
        except UnsupportedError as error:
            return WorkerAnswer(fault="unsupported", detail=str(error))
        except torch.cuda.OutOfMemoryError as error:
            return WorkerAnswer(fault="unsupported", detail=str(error))
        except Exception as error:  # noqa: BLE001 - it is a kernel's, and told as such
            detail = f"{type(error).__name__}: {error}"[:2000]
            return WorkerAnswer(fault="failed", detail=detail, is_broken=not _is_usable())

    def _do(self, ask: WorkerAsk) -> WorkerAnswer:
        if ask.action == "start":
            return WorkerAnswer(software={**_versions(), **self.provider.software()})
        if ask.action == "prepare":
            return WorkerAnswer(kernels=tuple(self._prepare(ask)))
        if self.problem is None:
            raise ValueError("no shape is prepared")
        if ask.action == "refine":
            provider = self.provider
            further = provider.refine(ask.best) if isinstance(provider, RefiningProvider) else ()
            return WorkerAnswer(kernels=tuple(further))
        launch = self._launch(ask.kernel)
        if ask.action == "time":
            return WorkerAnswer(seconds=self.problem.seconds(ask.kernel, launch, ask.calls))
        told = self.problem.check(ask.kernel, launch)
        if told:
            self.problem.forget(ask.kernel)
            del self._launches[ask.kernel]
        return WorkerAnswer(fault="incorrect", detail=told) if told else WorkerAnswer()

    def _forget(self) -> None:
        self.problem = None
        self._launches.clear()
        torch.cuda.empty_cache()

    def _prepare(self, ask: WorkerAsk) -> Sequence[str]:
        self._forget()
        if ask.product is None:
            raise ValueError("no shape is named")
        self.problem = ShapeProblem(ask.product.shape, ask.operand_sets)
        return self.provider.kernels(ask.product.shape, self.problem.sets[0])

    def _launch(self, kernel: str) -> Launch:
        if kernel not in self._launches and self.problem is not None:
            self._launches[kernel] = self.provider.launch(self.problem.shape, kernel)
        return self._launches[kernel]


def load(name: str, *arguments: str) -> Provider:
    """By its name. `generated` takes the folder of its kernels, names of some of them, and --no-pdl."""
    module, type_name = PROVIDERS[name]
    make = getattr(importlib.import_module(f"hillclimb.harness.gemm.providers.{module}"), type_name)
    options = {"pdl": False} if NO_PDL in arguments else {}
    found: Provider = make(*(one for one in arguments if one != NO_PDL), **options)
    return found


def serve(worker: ProviderWorker, asks: TextIO, answers: TextIO) -> None:
    """Until no more is asked, or the process can do no more."""
    for line in asks:
        answer = worker.answer(WorkerAsk.model_validate_json(line))
        print(answer.model_dump_json(), file=answers, flush=True)
        if answer.is_broken:
            return


def main() -> None:
    """Serves the provider that is named; what is wrong with its arguments is the answer to the first ask."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        worker = ProviderWorker(load(*sys.argv[1:]))
    except UsageError as error:
        sys.stdin.readline()
        wrong = WorkerAnswer(fault="unsupported", detail=str(error), is_broken=True)
        print(wrong.model_dump_json(), file=answers, flush=True)
    else:
        serve(worker, sys.stdin, answers)
    answers.close()
    os._exit(0)  # a broken context hangs in its own clean-up


def _is_usable() -> bool:
    try:
        torch.cuda.synchronize()
        return bool(torch.ones(8, device="cuda").sum().item() == 8)
    except Exception:  # noqa: BLE001 - whatever it is, the context is lost
        return False


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "cuda": torch.version.cuda or ""}


if __name__ == "__main__":
    main()
