"""docs/results/gemm.md tells what its evidence holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.gemm.comparison import BEST, ProviderComparison, compare
from hillclimb.harness.gemm.results import read_results

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "results" / "gemm.md").read_text()


def compared(folder: str, *providers: str) -> ProviderComparison:
    base, *others = (read_results(DOCS / "evidence" / folder / f"{name}.json") for name in providers)
    return compare(base, others)


@pytest.mark.parametrize(
    ("folder", "providers"),
    [
        ("gemm_warpgroups_h200", ("cublas", "generated", "cublaslt")),
        ("gemm_no_pdl_h200", ("cublas", "generated")),
    ],
)
def test_tables_by_m_are_those_of_the_evidence(folder: str, providers: tuple[str, ...]) -> None:
    found = compared(folder, *providers)
    names = (*providers[1:], BEST)
    for one in (found.summary, *found.bands):
        label = f"{one.least_m} to {one.most_m}" if one.most_m else f"from {one.least_m}"
        label = "all" if one is found.summary else label
        cells = " | ".join(f"{one.geometric_means[name]:.3f}" for name in names)
        assert f"| {label} | {one.shapes} | {cells} |" in PAGE
    smallest = " | ".join(f"{found.summary.smallest[name]:.3f}" for name in names)
    assert f"| smallest | | {smallest} |" in PAGE


@pytest.mark.parametrize(
    ("folder", "provider"),
    [("gemm_bench_h200", "cublaslt"), ("gemm_bench_h200", "triton"), ("gemm_generated_h200", "generated")],
)
def test_the_table_of_other_kernels_is_that_of_the_evidence(folder: str, provider: str) -> None:
    found = compared(folder, "cublas", provider)
    shapes = sum(provider in row.cells for row in found.shapes)
    means = [one.geometric_means[provider] for one in (found.summary, *found.bands)]
    cells = " | ".join(f"{value:.3f}" for value in (*means, found.summary.smallest[provider]))
    assert f"(`{folder}`) | {shapes} | {cells} |" in PAGE
