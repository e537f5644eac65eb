"""Names of cuBLASLt's algorithms are read as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.providers.cublaslt_algorithms import CLUSTERS, TILES, Algorithm, algorithm_named

algorithms = st.integers(0, 15).map(Algorithm) | st.builds(
    Algorithm, st.integers(0, 15), st.sampled_from(list(TILES)), st.sampled_from(list(CLUSTERS))
)


@given(algorithms)
def test_a_name_says_which_algorithm_it_is(one: Algorithm) -> None:
    assert algorithm_named(one.name) == one


@pytest.mark.parametrize(
    "name", ["", "heuristic_", "heuristic_1 ", "7x7_1x1_of_0", "64x64_9x9_of_0", "64x64_1x1", "cublas"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no algorithm of cuBLASLt"):
        algorithm_named(name)
