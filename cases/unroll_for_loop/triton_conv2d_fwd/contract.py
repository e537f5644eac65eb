"""2-D convolution of float16 images, NCHW: shapes, inputs, reference and compulsory work."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch
from torch.nn import functional

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import changed, unlisted

DTYPE = torch.float16
EPS, TINY = torch.finfo(DTYPE).eps, torch.finfo(DTYPE).tiny

HALF_ULP = 2.0**-24
"""Of a float32 sum: what each of its additions may lose. As much upwards as downwards, so that k of them lose sqrt(k)
(Higham & Mary, SIAM J. Sci. Comput. 41 (2019) A2815); tensor cores cut off, which comes to a twentieth of that."""

Pair = tuple[int, int]


def problem(
    images: int, image: tuple[int, int, int], filters: tuple[int, int, int],
    stride: Pair = (1, 1), padding: Pair = (0, 0), groups: int = 1,
) -> dict[str, object]:  # fmt: skip
    """`image` is (channels, height, width), `filters` (number, height, width)."""
    return {
        "x": (images, *image),
        "w": (filters[0], image[0] // groups, *filters[1:]),
        "stride": stride,
        "padding": padding,
        "groups": groups,
    }


class Contract(contract.Contract):
    """x is N x C x H x W, w is F x C/groups x R x S, y is N x F x P x Q; all contiguous float16."""

    problems: Mapping[str, Problem] = {
        "body_64x256x56x56_3x3": problem(64, (256, 56, 56), (256, 3, 3), padding=(1, 1)),
        "deep_128x512x14x14_3x3": problem(128, (512, 14, 14), (512, 3, 3), padding=(1, 1)),
        "down_64x256x56x56_3x3": problem(64, (256, 56, 56), (512, 3, 3), (2, 2), (1, 1)),
        "point_64x1024x28x28_1x1": problem(64, (1024, 28, 28), (256, 1, 1)),
        "grouped_64x512x28x28_3x3": problem(64, (512, 28, 28), (512, 3, 3), padding=(1, 1), groups=32),
        "stem_64x3x224x224_7x7": problem(64, (3, 224, 224), (64, 7, 7), (2, 2), (3, 3)),
        "ragged_33x123x45x51_5x3": problem(33, (123, 45, 51), (157, 5, 3), (1, 1), (2, 0)),
        "small_1x3x32x32_3x3": problem(1, (3, 32, 32), (16, 3, 3), padding=(1, 1)),
        "strided_2x5x13x11_3x3": problem(2, (5, 13, 11), (7, 3, 3), (2, 2), (1, 1)),
        "uneven_2x18x9x12_3x5": problem(2, (18, 9, 12), (20, 3, 5), (2, 1), (0, 2)),
        "channels_2x40x8x8_3x3": problem(2, (40, 8, 8), (72, 3, 3), padding=(1, 1)),
        "grouped_2x36x7x6_3x3": problem(2, (36, 7, 6), (40, 3, 3), padding=(1, 1), groups=2),
        "depthwise_2x6x8x7_3x3": problem(2, (6, 8, 7), (6, 3, 3), padding=(1, 1), groups=6),
        "point_2x40x8x9_1x1": problem(2, (40, 8, 9), (21, 1, 1)),
        "point_3x33x5x5_1x1": problem(3, (33, 5, 5), (17, 1, 1), (2, 2)),
        "border_1x2x3x3_5x5": problem(1, (2, 3, 3), (3, 5, 5), (1, 1), (2, 2)),
        "single_1x1x1x1_1x1": problem(1, (1, 1, 1), (1, 1, 1)),
    }
    distributions = ("normal", "offset", "wide", "framed")
    # A few products of two of them stay in float16.
    domains: Mapping[str, tuple[float, float]] = {"x": (-64, 64), "w": (-64, 64)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """x and w: drawn in one pass each and shaped in at most one more."""
        x, w = (
            torch.randn(problem[name], generator=generator, dtype=DTYPE, device=generator.device)
            for name in ("x", "w")
        )
        _SHAPED[distribution](x, w, generator)
        return {"x": x, "w": w}

    def attributes(self, problem: Problem) -> dict[str, int]:
        (stride_h, stride_w), (padding_h, padding_w) = problem["stride"], problem["padding"]
        return {
            "stride_h": stride_h,
            "stride_w": stride_w,
            "padding_h": padding_h,
            "padding_w": padding_w,
            "groups": problem["groups"],
        }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec(_shape(problem), DTYPE)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """Channels and filters of every group; strides, paddings and the filter's own size stay."""
        groups = problem["groups"]
        (images, _, height, width), (_, channels, *filter_) = problem["x"], problem["w"]
        sizes = {"images": images, "height": height, "width": width}
        sizes |= {"filters": problem["w"][0] // groups, "channels": channels}
        found = changed(sizes, secret, ("images",), ("height", "width"), ("filters", "channels"))
        others = [
            {
                **problem,
                "x": (other["images"], groups * other["channels"], other["height"], other["width"]),
                "w": (groups * other["filters"], other["channels"], *filter_),
            }
            for other in found
        ]
        return unlisted((other for other in others if min(_shape(other)) > 0), self.problems)

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": _convolution(problem, inputs["x"].double(), inputs["w"].double())}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {
            "y": functional.conv2d(
                inputs["x"], inputs["w"], None, problem["stride"], problem["padding"], 1, problem["groups"]
            )
        }

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """One rounding of the result, and of k float32 additions in any order: |y| + sqrt(k) (u32 / eps) |x| * |w|."""
        terms = _convolution(problem, inputs["x"].double().abs_(), inputs["w"].double().abs_())
        loss = prod(problem["w"][1:]) ** 0.5 * HALF_ULP / EPS
        return {"y": terms.mul_(loss).add_(reference["y"].abs()).clamp_min_(TINY)}

    def work(self, problem: Problem) -> Work:
        """Products with padding too: what is saved by leaving them out is not worth telling them apart."""
        y = prod(_shape(problem))
        elements = prod(problem["x"]) + prod(problem["w"]) + y
        return Work(flops=2 * y * prod(problem["w"][1:]), bytes=DTYPE.itemsize * elements)


def _shape(problem: Problem) -> tuple[int, int, int, int]:
    sizes = zip(problem["x"][2:], problem["w"][2:], problem["stride"], problem["padding"], strict=True)
    height, width = ((size + 2 * pad - filter_) // step + 1 for size, filter_, step, pad in sizes)
    return problem["x"][0], problem["w"][0], height, width


def _convolution(problem: Problem, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The sum over the filter's places of a product of matrices each: filters x channels by channels x pixels."""
    (images, filters, height, width), groups = _shape(problem), problem["groups"]
    (down, right), (above, left) = problem["stride"], problem["padding"]
    padded = functional.pad(x, (left, left, above, above))
    y = torch.zeros(images, groups, filters // groups, height * width, dtype=x.dtype, device=x.device)
    for row in range(w.shape[2]):
        for column in range(w.shape[3]):
            rows = slice(row, row + down * (height - 1) + 1, down)
            columns = slice(column, column + right * (width - 1) + 1, right)
            seen = padded[:, :, rows, columns].reshape(images, groups, w.shape[1], height * width)
            y += w[:, :, row, column].view(groups, filters // groups, w.shape[1]) @ seen
    return y.view(images, filters, height, width)


def _as_drawn(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    pass


def _offset(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """Means of 1, so that sums grow with every product: an accumulator of fewer bits than float32 stops growing."""
    x.mul_(0.5).add_(1)
    w.mul_(0.5).add_(1)


def _wide(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """Each image and each filter has a power of two of its own: a result in the wrong place is far off."""
    x.mul_(_powers(x.shape[0], generator))
    w.mul_(_powers(w.shape[0], generator))


def _framed(x: torch.Tensor, w: torch.Tensor, generator: torch.Generator) -> None:
    """The outermost pixels outweigh the others: padding in the wrong place, or one pixel off, shows."""
    for edge in (x[:, :, 0], x[:, :, -1], x[..., 0], x[..., -1]):
        edge.mul_(8)


def _powers(length: int, generator: torch.Generator) -> torch.Tensor:
    exponents = torch.randint(-10, 3, (length, 1, 1, 1), generator=generator, device=generator.device)
    return torch.exp2(exponents.to(torch.float32)).to(DTYPE)


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Generator], None]] = {
    "normal": _as_drawn,
    "offset": _offset,
    "wide": _wide,
    "framed": _framed,
}
