"""C functions as a backend calls them, here without a sandbox: compiled at the first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
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


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "3", None, torch.tensor(0.5)])
def test_what_no_number_of_c_holds_is_refused(source: Path, value: Any) -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(TypeError, match="shift is"):
        native_function(source, "scaled")(x, x.clone(), shift=value, factor=1.0)


@pytest.mark.parametrize("value", [numpy.int64(3), torch.tensor(3), True + 2])
def test_whole_numbers_of_other_kinds_are_whole(source: Path, value: Any) -> None:
    x, y = torch.zeros(2, 3), torch.empty(2, 3)
    native_function(source, "scaled")(x, y, shift=value, factor=1.0)
    assert torch.equal(y, torch.full((2, 3), 5.0))


def test_an_array_is_no_tensor(source: Path) -> None:
    with pytest.raises(TypeError, match="tensor 0 is a ndarray"):
        native_function(source, "scaled")(numpy.zeros((2, 3)), shift=0, factor=1.0)  # type: ignore[arg-type]


def test_a_function_of_the_runtime_is_none_of_the_sources(source: Path) -> None:
    text = "#include <stdlib.h>\nvoid *scaled(void) { return malloc(3); }\n"
    source.write_text(text)
    assert native_function(source, "scaled")
    for name in ("gethostname", "malloc", "system"):
        with pytest.raises(AttributeError, match="none of its own"):
            native_function(source, name)


def test_what_cannot_be_compiled_is_told_to_who_asks(source: Path, tmp_path: Path) -> None:
    for path in (".git/broken.c", "ops/body.c", "ops_scaled.c"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("no C")
    (tmp_path / "ops_scaled.c").write_text("void scaled(void) {}")
    place = tmp_path / "built"
    place.mkdir()
    compile_all(tmp_path, place)
    assert native_function(source, "scaled")
    with pytest.raises(CompilationError, match="error"):
        native_function(tmp_path / "ops" / "body.c", "scaled")
    with pytest.raises(CompilationError, match="rename one"):
        native_function(tmp_path / "ops_scaled.c", "scaled")


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
