"""What a few configurations say of all others: a Gaussian process over the rows of a valid list.

Run times of kernels are mostly products of what each knob does alone, and their logarithms sums, so the covariance of
two configurations is a sum: of each knob alone, of pairs of knobs, of all together (additive Gaussian processes,
Duvenaud et al., arXiv:1112.4394). Of one knob it is `exp(-w d^2 - u [differs])`, d the distance on the knob's own
scale: `w` says how smooth the knob is, `u` how much of it is no scale at all. All of it is fitted to what was seen, by
the most probable weights under wide lognormal priors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hillclimb.harness.knobs.knobs import KnobValue

if TYPE_CHECKING:
    import numpy as np

MAX_OPTIMISER_STEPS = 25
"""Of the optimiser; each costs 2 ms for 100 rows of 10 knobs, 8 ms for 200."""
JITTER = 1e-4
MIN_LOG_SCALE_RATIO = 3.0
"""Largest over smallest value, from which on a knob is on a logarithmic scale."""

_SCALE_PRIOR = (0.0, 1.2)
"""Mean and standard deviation of log w; over the whole domain d is 1."""
_JUMP_PRIOR = (math.log(0.15), 1.2)
_SHARE_PRIOR = (math.log(1 / 3), 1.5)
_NOISE_PRIOR = (-4.0, 1.5)
"""Of the log of the noise's variance, where the values' is 1."""
_MIN_LOG_WEIGHT, _MAX_LOG_WEIGHT = -9.0, 5.0


def distances(domains: Sequence[Sequence[KnobValue]]) -> list[np.ndarray]:
    """Of each knob, (values, values) of float32: the squares of distances between its values, 1 between the ends.

    Numbers lie on a line, on a logarithmic one where they span much; texts are all equally far apart.
    """
    return [_distances(domain) for domain in domains]


def _distances(domain: Sequence[KnobValue]) -> np.ndarray:
    import numpy as np

    if any(isinstance(value, str) for value in domain) or len(domain) < 2:
        apart: np.ndarray = (1 - np.eye(len(domain))).astype(np.float32)
        return apart
    places = np.array(domain, dtype=float)
    if places.min() >= 0 and places.max() >= MIN_LOG_SCALE_RATIO * max(places.min(), 1.0):
        places = np.log2(places + (places.min() == 0))
    places = (places - places.min()) / np.ptp(places)
    squares: np.ndarray = (np.subtract.outer(places, places) ** 2).astype(np.float32)
    return squares


@dataclass(frozen=True, eq=False)
class Covariance:
    """The fitted weights, as a table for each knob."""

    tables: tuple[np.ndarray, ...]
    """Of each knob, (values, values) of float32: the covariance of its values, 1 on the diagonal."""
    component_variances: tuple[float, float, float]
    """Variance of knobs alone, of pairs, of all together."""
    noise_variance: float
    """Variance of what no configuration explains."""

    @property
    def variance(self) -> float:
        """Of a configuration nothing is known about."""
        return sum(self.component_variances)

    def between(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        """(some, others) of float32, for rows of indices."""
        import numpy as np

        shape = (len(some), len(others))
        added, squared, product = np.zeros(shape, "f4"), np.zeros(shape, "f4"), np.ones(shape, "f4")
        for column, table in enumerate(self.tables):
            present = np.take(table[:, others[:, column]], some[:, column], axis=0)
            added += present
            squared += present * present
            product *= present
        alone, pairs, together = self.component_variances
        count = len(self.tables)
        paired = (added * added - squared) / (count * (count - 1)) if count > 1 else product
        covariance: np.ndarray = np.float32(alone / count) * added
        covariance += np.float32(pairs) * paired
        covariance += np.float32(together) * product
        return covariance


def fit_covariance(rows: np.ndarray, values: np.ndarray, scales: Sequence[np.ndarray]) -> Covariance:
    """The most probable covariance.

    `rows`: (seen, knobs) of indices; `values`: (seen,), of mean 0 and variance 1; `scales`: see `distances`.
    """
    from scipy.optimize import minimize

    means, spreads = _prior(len(scales))
    found = minimize(
        _negative_log_posterior(rows, values, scales, means, spreads),
        means,
        jac=True,
        method="L-BFGS-B",
        bounds=[(_MIN_LOG_WEIGHT, _MAX_LOG_WEIGHT)] * len(means),
        options={"maxiter": MAX_OPTIMISER_STEPS},
    )
    return _covariance(found.x, scales)


def prior_covariance(scales: Sequence[np.ndarray]) -> Covariance:
    """The covariance that the priors expect, before anything was seen."""
    return _covariance(_prior(len(scales))[0], scales)


def _prior(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the logarithms of all weights of so many knobs."""
    import numpy as np

    each = zip(_SCALE_PRIOR, _JUMP_PRIOR, _SHARE_PRIOR, _NOISE_PRIOR, strict=True)
    means, spreads = (np.repeat(column, [count, count, 3, 1]) for column in each)
    return means, spreads


def _covariance(point: np.ndarray, scales: Sequence[np.ndarray]) -> Covariance:
    import numpy as np

    count, weights = len(scales), np.exp(point)
    tables = [
        np.exp(-smooth * scale - jump * (1 - np.eye(len(scale)))).astype(np.float32)
        for smooth, jump, scale in zip(weights[:count], weights[count : 2 * count], scales, strict=True)
    ]
    alone, pairs, together, noise = weights[2 * count :].tolist()
    return Covariance(tuple(tables), (alone, pairs, together), noise)


def _negative_log_posterior(
    rows: np.ndarray, values: np.ndarray, scales: Sequence[np.ndarray], means: np.ndarray, spreads: np.ndarray
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Negative log probability of the values, and its gradient, by the logarithms of the weights.

    Pairs of rows are taken once, as vectors; most of the work is in single precision.
    """
    import numpy as np

    size, count = rows.shape
    upper = np.triu_indices(size, 1)
    one, other = rows[upper[0]], rows[upper[1]]
    apart = np.stack([scale[one[:, j], other[:, j]] for j, scale in enumerate(scales)])
    differs = np.ascontiguousarray((one != other).T.astype(np.float32))
    ways = count * (count - 1)

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        weights = np.exp(point)
        smooth, jump = (part.astype(np.float32)[:, None] for part in (weights[:count], weights[count:-4]))
        alone, pairs, together, noise = weights[-4:]
        each = np.exp(-(smooth * apart + jump * differs))
        added, product = each.sum(0), each.prod(0)
        parts = (added / count, (added * added - (each * each).sum(0)) / ways if ways else product, product)
        matrix = np.empty((size, size))
        matrix[upper] = matrix.T[upper] = alone * parts[0] + pairs * parts[1] + together * parts[2]
        np.fill_diagonal(matrix, weights[-4:].sum() + JITTER)
        solved = _solve(matrix, values)
        if solved is None:
            return 1e10, np.zeros(len(point))
        inverse, alpha, half_log_determinant = solved
        pull = (inverse[upper] - alpha[upper[0]] * alpha[upper[1]]).astype(np.float32)
        onto_itself = 0.5 * float(np.trace(inverse) - alpha @ alpha)
        slope = _slopes(each, added, product, pull, (alone, pairs, together))
        deviation = (point - means) / spreads
        gradient = np.concatenate(
            [
                -weights[:count] * np.einsum("ij,ij->i", slope, apart),
                -weights[count:-4] * np.einsum("ij,ij->i", slope, differs),
                [
                    share * (pull @ part + onto_itself)
                    for share, part in zip(weights[-4:-1], parts, strict=True)
                ],
                [noise * onto_itself],
            ]
        )
        total = 0.5 * values @ alpha + half_log_determinant + 0.5 * deviation @ deviation
        return float(total), gradient + deviation / spreads

    return loss


def _slopes(
    each: np.ndarray,
    added: np.ndarray,
    product: np.ndarray,
    pull: np.ndarray,
    shares: tuple[float, float, float],
) -> np.ndarray:
    """(knobs, pairs of rows): how the loss goes with the logarithm of each knob's covariance."""
    import numpy as np

    alone, pairs, together = map(np.float32, shares)
    count = np.float32(len(each))
    slope: np.ndarray
    if count == 1:
        slope = each * (pull * alone) + pull * (pairs + together) * product
        return slope
    paired = 2 * pairs / (count * (count - 1))
    slope = each * (pull * (alone / count + paired * added))
    slope -= each * each * (paired * pull)
    slope += pull * together * product
    return slope


def _solve(matrix: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Inverse, inverse times values, half the log determinant; None where the matrix is not positive."""
    import numpy as np
    from scipy.linalg.lapack import dpotrf, dpotri

    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        return None
    lower, _ = dpotri(factor, lower=1)
    inverse = np.tril(lower) + np.tril(lower, -1).T
    return inverse, inverse @ values, float(np.log(np.diag(factor)).sum())


class Posterior:
    """What is expected of rows, given what was seen; it can be told of more rows whose values are still to come."""

    def __init__(
        self, covariance: Covariance, rows: np.ndarray, values: np.ndarray, asked: np.ndarray
    ) -> None:
        """`rows`: (seen, knobs), `values`: (seen,), `asked`: (asked, knobs)."""
        import numpy as np
        from scipy.linalg import cho_solve, cholesky, solve_triangular

        self._covariance, self._asked = covariance, asked
        self.noise_variance = covariance.noise_variance
        """Variance of each row's own, on top of `variance`."""
        own = covariance.between(rows, rows).astype(float)
        own[np.diag_indices(len(own))] = covariance.variance + covariance.noise_variance + JITTER
        factor = cholesky(own, lower=True)
        across = covariance.between(asked, rows)
        self.mean: np.ndarray = across @ cho_solve((factor, True), values).astype(np.float32)
        """(asked,)"""
        self._explained = solve_triangular(
            factor.astype(np.float32), across.T, lower=True, check_finite=False
        )
        self.variance: np.ndarray = np.maximum(
            covariance.variance - np.einsum("ij,ij->j", self._explained, self._explained), 1e-10
        )
        """(asked,)"""

    def restrict(self, chosen: np.ndarray) -> None:
        """Go on with these of the asked rows alone."""
        self._asked, self._explained = self._asked[chosen], self._explained[:, chosen]
        self.mean, self.variance = self.mean[chosen], self.variance[chosen]

    def condition_on_mean(self, index: int) -> None:
        """Suppose that asked row `index` turns out as expected: what is like it becomes less uncertain."""
        import numpy as np

        across = self._covariance.between(self._asked, self._asked[index : index + 1])[:, 0]
        left = across - self._explained.T @ self._explained[:, index]
        step = left / math.sqrt(float(self.variance[index]) + self._covariance.noise_variance + JITTER)
        self._explained = np.vstack([self._explained, step[None]])
        self.variance = np.maximum(self.variance - step**2, 1e-10)
