"""Matrix products by specialised warps: which products they are for, and that Hopper's compiler takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.workspace import CASES, import_file

CASES_OF = ("iv_dependent_matmul", "matmul_leakyrelu", "matmul_triton1", "triton_matmul")
FILES = [CASES / "unroll_for_loop" / name / "workspace" / "warps.py" for name in CASES_OF]
warps = import_file(FILES[0])

COMPILE = """
import json, sys
from hillclimb.harness.candidate.offline_compiler import use_compile_only_driver
noting = use_compile_only_driver(90)
import torch
from tests.cases.workspace import import_file
warps = import_file(sys.argv[1])
for m, n, k, dtype, turned, slope in json.loads(sys.argv[2]):
    kept = torch.float16 if "float8" in dtype else getattr(torch, dtype)
    b = (n, k) if turned else (k, n)
    a, b = (torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for shape in ((m, k), b))
    c = torch.empty((m, n), dtype=kept, device="meta")
    form = warps.form_of(m, n, k, a.element_size())
    warps.product(a, b, c, form, 8, turned=turned, slope=slope)
print("ANSWER" + json.dumps([(made.name, made.stack, made.shared) for made in noting.kernels.values()]))
"""

PRODUCTS = [
    (4096, 4096, 4096, "bfloat16", False, None),
    (8192, 14336, 4096, "float16", True, None),
    (16384, 4096, 4096, "float16", False, 0.01),
    (8192, 8192, 8192, "float8_e4m3fn", True, None),
    (4096, 4096, 32768, "float8_e4m3fn", True, None),
]


def test_the_four_cases_have_the_same_file() -> None:
    assert len({file.read_bytes() for file in FILES}) == 1


@pytest.mark.parametrize(
    ("m", "n", "k", "item"),
    [
        (1024, 1024, 32768, 2),  # 32 tiles: splits are faster
        (32, 16384, 16384, 2),
        (4096, 4096, 1024, 2),  # 16 steps: writing weighs
        (256, 256, 256, 1),
    ],
)
def test_they_are_not_for_few_tiles_or_steps(m: int, n: int, k: int, item: int) -> None:
    assert warps.form_of(m, n, k, item) is None


@pytest.mark.parametrize(("m", "n", "k", "dtype", "turned", "slope"), PRODUCTS)
def test_they_are_for_large_products(
    m: int, n: int, k: int, dtype: str, turned: bool, slope: float | None
) -> None:
    form = warps.form_of(m, n, k, 1 if "float8" in dtype else 2)
    assert form is not None
    assert form.share(m, n) >= warps.FULL
    assert form.share(m, n) <= 1


def test_a_ring_has_whole_chains() -> None:
    for form in warps.FORMS[1]:
        assert form.groups == 3 or form.stages % 2 == 0


@pytest.mark.slow(15)
@pytest.mark.timeout(300)
def test_hopper_compiles_them_without_a_spill(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(FILES[0]), json.dumps(PRODUCTS)],
        capture_output=True,
        text=True,
        cwd=CASES.parent,
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert "ANSWER" in done.stdout, done.stderr
    made = json.loads(done.stdout.partition("ANSWER")[2])
    assert len(made) == len(PRODUCTS)
    for name, stack, shared in made:
        assert name == "specialised"
        assert stack in (0, None), "spilled"  # None where cuobjdump is not there
        assert shared <= 232448
