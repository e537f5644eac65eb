"""Is written with protocols, generics and overloads, which only a type checker reads.

family: patched-judge
entries: [42]
case: affine
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, TypeVar, cast, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T", bound="Step")


class Step(Protocol):
    def __call__(self, y: NDArray[np.float32]) -> None: ...


class Times:
    factor: ClassVar[Annotated[np.float32, "two"]] = np.float32(2)

    def __call__(self, y: NDArray[np.float32]) -> None:
        y *= self.factor


class Plus:
    def __init__(self, term: float) -> None:
        self.term = np.float32(term)

    def __call__(self, y: NDArray[np.float32]) -> None:
        y += self.term


class Chain(Generic[T]):
    __slots__ = ("steps",)

    def __init__(self, *steps: T) -> None:
        self.steps = steps

    @overload
    def __call__(self, y: NDArray[np.float32]) -> None: ...
    @overload
    def __call__(self, y: Any) -> None: ...
    def __call__(self, y: Any) -> None:
        for step in self.steps:
            step(cast("NDArray[np.float32]", y))


work: Chain[Any] = Chain(Times(), Plus(1.0))


def run(x, y):
    y[:] = x
    work(y)
