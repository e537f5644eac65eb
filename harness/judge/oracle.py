"""Puts a contract to the test: results that are wrong on purpose, of which its budget should accept none.

A wrong result is what the contract's own plain computation makes of inputs that were spoiled. What is accepted is no
fault of the contract for certain: an input may not matter at its end, and a result in fewer bits than its inputs may
hide what they lost. So it is told, and a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.case.contract import Contract, Tensors
from harness.errors import CaseError
from harness.judge.parity import Expected, expect, worst_error
from harness.judge.protocol import Progress, Watch
from harness.records import OracleReport, Slip

NARROW_BITS = {torch.float64: 24, torch.float32: 11, torch.float16: 4, torch.bfloat16: 4}
"""Of a number's significand, what the next narrower arithmetic keeps: float32, TF32 and float16, float8 (e4m3)."""

SMALL_BYTES = 1 << 20
"""Most that a problem may move for the ends of its inputs to be left out one by one."""

FEWEST = 2
"""Problems that are looked at in fewer bits where none that is timed can be."""

SEED = 1


@dataclass(frozen=True)
class Oracle:
    """What a contract says is right, and wrong results for it."""

    contract: Contract
    error_budget: float
    place: str
    """torch's name of the device the tensors are on."""

    def ends(self, problems: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Of each input and dimension, the largest error where its last slice is all zeros; no problem need show it."""
        shares: dict[str, float] = {}
        for inputs, name, expected in self._drawn(problems):
            for key, dim in _places(inputs):
                mistake = f"the end of {key} left out along dimension {dim}"
                if shares.setdefault(mistake, 0.0) <= 1:
                    spoiled = {**inputs, key: _without_end(inputs[key], dim)}
                    shares[mistake] = max(shares[mistake], self._share(name, spoiled, expected))
        yield from shares.items()

    def narrowed(self, problem: str) -> float:
        """The largest error where all inputs have the bits of narrower arithmetic, each in units of its own size."""
        return max(
            self._share(name, {key: narrow(tensor) for key, tensor in inputs.items()}, expected)
            for inputs, name, expected in self._drawn([problem])
        )

    def has_bits(self, problem: str) -> bool:
        """Whether any input has bits to lose: whole numbers and float8 have not."""
        inputs = self._inputs(problem, self.contract.distributions[0])
        return any(tensor.dtype in NARROW_BITS for tensor in inputs.values())

    def _drawn(self, problems: Iterable[str]) -> Iterator[tuple[Tensors, str, Expected]]:
        """Inputs of each problem and distribution, with what is expected of them."""
        for name in problems:
            for distribution in self.contract.distributions:
                inputs = self._inputs(name, distribution)
                problem = self.contract.problems[name]
                yield inputs, name, expect(self.contract, problem, inputs, self.error_budget)

    def _inputs(self, name: str, distribution: str) -> Tensors:
        generator = torch.Generator(self.place).manual_seed(SEED)
        return self.contract.inputs(self.contract.problems[name], distribution, generator)

    def _share(self, name: str, spoiled: Tensors, expected: Expected) -> float:
        """Of the budget; infinite where the wrong result is not even finite, which the contract refuses."""
        try:
            return worst_error(self.contract.attainable(self.contract.problems[name], spoiled), expected)
        except CaseError:
            return float("inf")


def put_to_the_test(
    oracle: Oracle, gated: Sequence[str], timed: Sequence[str], is_narrow_forbidden: bool, watch: Watch
) -> OracleReport:
    """Which wrong results of the `gated` problems are accepted: ends left out, and in those `timed`, fewer bits."""
    sizes = {name: oracle.contract.work(oracle.contract.problems[name]).bytes for name in gated}
    by_size = sorted(gated, key=sizes.__getitem__)
    small = [name for name in by_size if sizes[name] <= SMALL_BYTES] or by_size[:1]
    judged = [name for name in timed if name in sizes] or by_size[-FEWEST:]
    narrowed = [name for name in judged if is_narrow_forbidden and oracle.has_bits(name)]
    watch(Progress(stage="oracle"))
    found = [Slip(mistake=mistake, share=share) for mistake, share in oracle.ends(small)]
    for done, name in enumerate(narrowed):
        watch(Progress(stage="oracle", done=done, of=len(narrowed)))
        found.append(Slip(mistake="inputs in fewer bits", problem=name, share=oracle.narrowed(name)))
    return OracleReport(tried=len(found), accepted=tuple(slip for slip in found if slip.share <= 1))


def narrow(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with so many bits of significand as NARROW_BITS says of its dtype; others as they are."""
    bits = NARROW_BITS.get(tensor.dtype)
    if bits is None:
        return tensor
    significand, exponent = torch.frexp(tensor.double())
    return torch.ldexp((significand * 2**bits).round_(), exponent - bits).to(tensor.dtype)


def _places(inputs: Tensors) -> Iterator[tuple[str, int]]:
    """Inputs of numbers that are computed with, and their dimensions; others are places, lengths and choices."""
    for key, tensor in inputs.items():
        if tensor.is_floating_point():
            yield from ((key, dim) for dim, size in enumerate(tensor.shape) if size > 1)


def _without_end(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    cut = tensor.clone()
    cut.select(dim, -1).zero_()
    return cut
