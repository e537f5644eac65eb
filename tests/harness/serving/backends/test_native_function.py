"""C functions as a backend calls them, here without a sandbox: compiled at the first use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hillclimb.harness.candidate.native_kernel import CompilationError, ForeignSymbolError
from hillclimb.harness.serving.backends.native_function import compile_all, native_function

SCALED = """
#include <stdint.h>

void scaled(const float *x, float *y, const int64_t *sizes, int64_t shift, double factor)
{
    for (int64_t i = 0; i < sizes[0] * sizes[1]; i++)
        y[i] = x[i] * factor + shift + sizes[2];
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "scaled.c").write_text(SCALED)
    return tmp_path / "ops" / "scaled.c"


def test_tensors_sizes_and_numbers_arrive(source: Path) -> None:
    x, y = torch.arange(6.0).view(2, 3), torch.empty(2, 3)
    native_function(source, "scaled")(x, y, shift=3, factor=0.5)
    assert torch.equal(y, x * 0.5 + 3 + 2)


def test_one_function_is_made_once(source: Path) -> None:
    assert native_function(source, "scaled") is native_function(source, "scaled")


@pytest.mark.parametrize("tensor", [torch.zeros(3, 2).T, torch.zeros(2, 3, device="meta")])
def test_what_does_not_lie_there_plainly_is_refused(source: Path, tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="scaled: tensor 1 is on"):
        native_function(source, "scaled")(torch.zeros(2, 3), tensor, shift=0, factor=1.0)


def test_a_function_that_is_not_there_is_named(source: Path) -> None:
    with pytest.raises(AttributeError, match="scale_d"):
        native_function(source, "scale_d")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("void scaled(", CompilationError),
        ("void dlopen(void); void scaled(void) { dlopen(); }", ForeignSymbolError),
    ],
)
def test_what_cannot_be_built_raises(source: Path, text: str, error: type[Exception]) -> None:
    source.write_text(text)
    with pytest.raises(error):
        native_function(source, "scaled")


def test_all_sources_but_those_of_tests_are_compiled(source: Path, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "broken.c").write_text("no C")
    (tmp_path / "scaled.cpp").write_text('extern "C" void scaled() {}')
    place = tmp_path / "built"
    place.mkdir()
    compile_all(tmp_path, place)
    assert {path.name for path in place.iterdir()} == {"ops_scaled_c.so", "scaled_cpp.so"}
    source.unlink()  # it is not compiled once more
    assert native_function(source, "scaled")
