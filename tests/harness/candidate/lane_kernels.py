"""Kernels whose masked lanes and loop trips are known; lines that are counted say so in a comment.

Run as a program it answers lines of JSON, {"kernel": name of a function below, ...sizes}, with what was counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):  # softmax.maximum
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + at + column, mask=column < columns, other=-float("inf"))  # softmax.first
        top = tl.maximum(top, value.to(tl.float32))
    highest = tl.max(top, 0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=2):  # softmax.sum
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + at + column, mask=column < columns, other=-float("inf"))  # softmax.second
        total += tl.exp(value.to(tl.float32) - highest)
    sum = tl.sum(total, 0)
    for start in tl.range(0, columns, BLOCK):  # softmax.quotient
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + at + column, mask=column < columns)  # softmax.third
        result = tl.exp(value.to(tl.float32) - highest) / sum
        tl.store(  # softmax.store
            y + at + column,
            result.to(y.dtype.element_ty),
            mask=column < columns,
        )


@triton.jit
def padded_kernel(x, y, heads, depth, HEADS: tl.constexpr, DEPTH: tl.constexpr):
    """One token's heads x depth elements in a tile of powers of two."""
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, DEPTH)[None, :]
    at = tl.program_id(0) * heads * depth + head * depth + column
    real = (head < heads) & (column < depth)
    value = tl.load(x + at, mask=real, other=0.0)  # padded.load
    tl.store(y + at, value, mask=real)  # padded.store


@triton.jit
def row_total(x, at, length, STEP: tl.constexpr):
    total = 0.0
    done = 0
    while done < length:  # nested.inner
        i = done + tl.arange(0, STEP)
        total += tl.sum(tl.load(x + at + i, mask=i < length, other=0.0), 0)  # nested.load
        done += STEP
    return total


@triton.jit
def nested_kernel(x, lengths, y, rows, width, STEP: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):  # nested.outer
        length = tl.load(lengths + row)  # nested.length
        tl.store(y + row, row_total(x, row * width, length, STEP))  # nested.store


@triton.jit
def other_kernel(x, lengths, y, rows, width, STEP: tl.constexpr):
    """Calls the same function as the kernel above, with the first row only."""
    length = tl.load(lengths)  # other.length
    tl.store(y, row_total(x, 0, length, STEP))  # other.store


@triton.jit
def leaving_kernel(limits, y, most):
    """Leaves its loops by break, continue and return, and through an else."""
    limit = tl.load(limits + tl.program_id(0))  # leaving.limit
    found = 0
    for i in range(0, most):  # leaving.break
        if i == limit:
            break
        if i % 2 == 1:
            continue
        found += 1
    else:
        tl.store(y + tl.program_id(0), -1)  # leaving.else
        return
    for i in tl.static_range(3):  # leaving.static
        for j in range(0, 100):  # leaving.return
            if j == i + limit:
                tl.store(y + tl.program_id(0), found + j)  # leaving.store
                return


@triton.jit
def atomics_kernel(x, sums, tops, lock, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < size, other=0.0)  # atomics.load
    tl.atomic_add(sums + i % 4, value, mask=i < size)  # atomics.add
    tl.atomic_max(tops + i % 4, value, mask=i < size)  # atomics.max
    tl.atomic_cas(lock, 0, 1)  # atomics.cas


@triton.jit
def descriptor_kernel(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    target.store(at, source.load(at))  # descriptor.both


@triton.jit
def gather_kernel(x, at, y, rows, columns, COUNT: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows of x by number; those that x does not have are zero, and go nowhere."""
    number = tl.load(at + tl.arange(0, COUNT))  # gather.numbers
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [1, COLUMNS])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [1, COLUMNS])
    found = source.gather(number, 0)  # gather.gather
    target.scatter(found, number, 0)  # gather.scatter


@triton.jit
def block_pointer_kernel(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows' bounds are checked; columns are a multiple of the block's."""
    at = (tl.program_id(0) * ROWS, 0)
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), at, (ROWS, COLUMNS), (1, 0))
    target = tl.make_block_ptr(y, (rows, columns), (columns, 1), at, (ROWS, COLUMNS), (1, 0))
    for _ in range(0, columns, COLUMNS):  # block.loop
        tile = tl.load(source, boundary_check=(0,), padding_option="zero")  # block.load
        tl.store(target, tile, boundary_check=(0,))  # block.store
        source = tl.advance(source, (0, COLUMNS))
        target = tl.advance(target, (0, COLUMNS))


def softmax(rows: int, columns: int, block: int, dtype: str) -> torch.Tensor:
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, block)
    return (y.double() - torch.softmax(x.double(), 1)).abs().max()


def padded(tokens: int, heads: int, depth: int, dtype: str) -> torch.Tensor:
    x = torch.ones(tokens, heads, depth, dtype=getattr(torch, dtype))
    y = torch.zeros_like(x)
    power = triton.next_power_of_2
    padded_kernel[(tokens,)](x, y, heads, depth, power(heads), power(depth))
    return (x.double() - y.double()).abs().max()


def nested(lengths: list[int], step: int, programs: int) -> torch.Tensor:
    rows, width = len(lengths), max([*lengths, 1])
    x, y = torch.ones(rows, width), torch.full((rows,), -1.0)
    counts = torch.tensor(lengths, dtype=torch.int32)
    nested_kernel[(programs,)](x, counts, y, rows, width, step)
    first = torch.full((1,), -1.0)
    other_kernel[(1,)](x, counts, first, rows, width, step)
    return (y - counts).abs().max() + (first[0] - counts[0]).abs()


def leaving(limits: list[int], most: int) -> torch.Tensor:
    y = torch.empty(len(limits), dtype=torch.int32)
    leaving_kernel[(len(limits),)](torch.tensor(limits, dtype=torch.int32), y, most)
    wanted = [-1 if limit >= most else (limit + 1) // 2 + limit for limit in limits]
    return (y - torch.tensor(wanted)).abs().max()


def atomics(size: int, block: int) -> torch.Tensor:
    x = torch.arange(size, dtype=torch.float32) - size // 2
    sums, tops = torch.zeros(4), torch.full((4,), -1e9)
    programs = triton.cdiv(size, block)
    atomics_kernel[(programs,)](x, sums, tops, torch.zeros(1, dtype=torch.int32), size, block)
    return (sums.sum() - x.sum()).abs() + (tops.max() - x.max()).abs()


def descriptor(rows: int, columns: int, block: int) -> torch.Tensor:
    x = torch.ones(rows, columns, dtype=torch.float16)
    y = torch.zeros_like(x)
    grid = (triton.cdiv(rows, block), triton.cdiv(columns, block))
    descriptor_kernel[grid](x, y, rows, columns, block, block)
    return (x - y).abs().max()


def gather(numbers: list[int], rows: int, columns: int, width: int) -> torch.Tensor:
    x = torch.ones(rows, columns, dtype=torch.float32)
    y = torch.zeros_like(x)
    at = torch.tensor(numbers, dtype=torch.int32)
    gather_kernel[(1,)](x, at, y, rows, columns, len(numbers), width)
    wanted = torch.zeros_like(x)
    wanted[[number for number in numbers if number < rows], :width] = 1
    return (y - wanted).abs().max()


def block_pointer(rows: int, columns: int, block: int) -> torch.Tensor:
    x = torch.ones(rows, columns, dtype=torch.bfloat16)
    y = torch.zeros_like(x)
    block_pointer_kernel[(triton.cdiv(rows, block),)](x, y, rows, columns, block, 8)
    return (x - y).float().abs().max()


RUNS: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": softmax,
    "padded": padded,
    "nested": nested,
    "leaving": leaving,
    "atomics": atomics,
    "descriptor": descriptor,
    "gather": gather,
    "block_pointer": block_pointer,
}


def answer(kernel: str, times: int = 1, workspace: str = "", **sizes: Any) -> dict[str, Any]:
    """What was counted, the largest errors before, while and after that, and whether all is as it was."""
    from hillclimb.harness.candidate.lane_counter import counting_lanes

    before = (RUNS[kernel](**sizes), methods())
    with counting_lanes(workspace or str(Path(__file__).parent)) as tally:
        wrong = [RUNS[kernel](**sizes) for _ in range(times)]
    after = (RUNS[kernel](**sizes), methods())
    errors = [float(error) for error in (before[0], *wrong, after[0])]
    return {"told": tally.to_json(), "wrong": errors, "restored": before[1] == after[1]}


def methods() -> list[object]:
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    owners = (
        TritonSemantic,
        interpreter.InterpreterBuilder,
        interpreter.GridExecutor,
        interpreter.FunctionRewriter,
    )
    return [method for owner in owners for method in vars(owner).values()]


def main() -> None:
    from hillclimb.harness.candidate.interpreter_fixes import apply_fixes

    apply_fixes()
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
