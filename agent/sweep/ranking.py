"""Ranking: which rows of a valid list to try next, in batches, given what was seen of others.

What is bad is all alike: values below the threshold that parts good from bad count as the threshold, failures among
them, so the surrogate spends itself on telling the good ones apart. Rows are taken by expected improvement; the rest of
a batch is chosen as if those before it had turned out as expected, which keeps a batch from crowding in one place.
No weights are trusted alone: the improvement is the mean of what three surrogates expect, with the weights fitted last,
with those fitted before, and with none fitted. The longer nothing better is found, the less every other row of a batch
believes the surrogates, and the farther from what is known it goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from hillclimb.agent.sweep.surrogate import Covariance, Posterior, distances, fit_covariance, prior_covariance
from hillclimb.agent.sweep.valid_configs import ValidConfigs

if TYPE_CHECKING:
    import numpy as np

MIN_EVALUATED_ROWS = 10
"""Rows seen before anything is expected of others; up to then they are drawn."""
BAD_QUANTILE, SLOW_QUANTILE = 0.3, 0.1
"""Of what was seen, failures included, the part that counts as bad and alike; and of what ran, the least such part.
Without the second, where many fail, the surrogates learn to tell failures apart and nothing else."""
MAX_BEST_ROWS = 3
"""Rows whose neighbours are always weighed."""
MAX_REMEMBERED_BEST, MAX_REMEMBERED_LATEST = 100, 200
"""Most rows that anything is expected from; time grows with the square, of fitting with the cube."""
MAX_FITTED_SURROGATES = 2
"""Fitted surrogates that are asked."""
FIT_ROW_COUNTS = tuple(round(MIN_EVALUATED_ROWS * 1.25**step) for step in range(40))
"""Counts of rows at which the covariance is fitted anew."""
MAX_POOL_ROWS = 12_000
"""Rows that are weighed; of longer lists a sample, which the neighbourhoods of the best rows are added to."""
POOL_EXPANSIONS = 3
"""How often the neighbours of the most promising rows of such a sample are added to it."""
MAX_SHORTLIST_ROWS = 300
MIN_UNCERTAINTY_FACTOR, MAX_UNCERTAINTY_FACTOR = 2.0, 6.0
"""How much wider than fitted the uncertainty is taken to be: weights that fit best are surer of themselves than few
values allow. The first, third, fifth row of a batch; and the others at most."""
PATIENCE_ROWS = 10
"""Rows without a better one that widen it by one more for those others: where the best is far from the best known, the
surrogates are wrong about where it is, and keep to what they know unless they are doubted."""
MIN_LOG_GAIN = 0.01
"""By how much of the logarithm a row must be better for that: less may be chance, or a last polish."""


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """What was tried, in the order it was."""

    rows: np.ndarray
    """(seen,) rows of the list."""
    values: np.ndarray
    """(seen,) of float64: log speedup, the larger the better; nan where it failed."""


@dataclass(frozen=True, eq=False)
class _TrainingData:
    """What is known of the list, the good told apart."""

    inputs: np.ndarray
    """(known, knobs), and a column more where some was seen in an earlier run: 1 for this one."""
    targets: np.ndarray
    """(known,), of mean 0 and variance 1."""
    best_rows: np.ndarray
    """Rows of the best ones."""
    uncertainty_factor: float
    """Of every other row of a batch."""


@dataclass(frozen=True, eq=False)
class _SurrogateEnsemble:
    """What several surrogates expect of the same rows."""

    posteriors: Sequence[Posterior]
    best: float
    """Worth of the best row known."""

    def expected_improvement(self, curiosity: float = MIN_UNCERTAINTY_FACTOR) -> np.ndarray:
        """(asked,): by how much each row is expected to surpass the best, in the mean of the surrogates."""
        import numpy as np

        improvements = [_improvement(posterior, self.best, curiosity) for posterior in self.posteriors]
        mean: np.ndarray = np.mean(improvements, axis=0)
        return mean

    def restrict(self, chosen: np.ndarray) -> None:
        """Go on with these of the rows alone."""
        for posterior in self.posteriors:
            posterior.restrict(chosen)

    def condition_on_mean(self, index: int) -> None:
        """Suppose that a row turns out as expected."""
        for posterior in self.posteriors:
            posterior.condition_on_mean(index)


def _improvement(posterior: Posterior, best: float, curiosity: float) -> np.ndarray:
    """By how much each row is expected to surpass the best.

    What no covariance explains counts as a row's own: kernels are timed too well for it to be noise.
    """
    import numpy as np
    from scipy.special import ndtr

    spread = curiosity * np.sqrt(posterior.variance + posterior.noise_variance)
    z = (posterior.mean - best) / spread
    improvement: np.ndarray = spread * (z * ndtr(z) + np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))
    return improvement


@dataclass(eq=False)
class ListRanker:
    """Ranks one list. It remembers covariances that it fitted; what it says depends on its arguments alone."""

    valid_configs: ValidConfigs
    _fitted: dict[bytes, Covariance] = field(default_factory=dict, repr=False)

    def next_rows(
        self,
        seen: EvaluatedRows,
        taken: np.ndarray,
        count: int,
        rng: np.random.Generator,
        earlier: EvaluatedRows | None = None,
    ) -> list[int]:
        """At most `count` rows to try, the first one first; fewer where no more are left.

        `taken`: (any,) rows that are not to be tried, besides those seen. `earlier`: what another run saw of the list,
        in which its knobs may have done something else; how much they have in common is fitted too.
        """
        from threadpoolctl import threadpool_limits

        # a hundred rows are too few to share: on a busy machine threads that wait for each other take 50 times as long
        with threadpool_limits(1, "blas"):
            return self._next(seen, taken, count, rng, earlier)

    def _next(
        self,
        seen: EvaluatedRows,
        taken: np.ndarray,
        count: int,
        rng: np.random.Generator,
        earlier: EvaluatedRows | None,
    ) -> list[int]:
        import numpy as np

        out = np.concatenate([seen.rows, taken]).astype(np.int64)
        count_known = len(seen.rows) + (len(earlier.rows) if earlier else 0)
        known = self._training_data(seen, earlier) if count_known >= MIN_EVALUATED_ROWS else None
        if known is None:
            return self._draw(out, count, rng)
        pool = self._pool(out, known.best_rows, rng)
        if not len(pool):
            return []
        beliefs, pool = self._expand_pool(self._covariances(seen, earlier), known, pool, out)
        return self._choose(beliefs, pool, known, count)

    def _training_data(self, seen: EvaluatedRows, earlier: EvaluatedRows | None) -> _TrainingData | None:
        """What is known; None where nothing ran."""
        import numpy as np

        curiosity = _uncertainty_factor(seen.values)
        seen = _best_and_latest(seen)
        rows, values = seen.rows, seen.values
        inputs = self.valid_configs.rows[rows]
        if earlier:
            values = np.concatenate([_align(earlier, seen), values])
            rows = np.concatenate([earlier.rows, rows])
            now = np.arange(len(rows)) >= len(earlier.rows)
            inputs = np.column_stack([self.valid_configs.rows[rows], now.astype(np.int16)])
        if not np.isfinite(values).any():
            return None
        worth = _standardise(values)
        return _TrainingData(
            inputs, worth, rows[np.argsort(-worth, kind="stable")[:MAX_BEST_ROWS]], curiosity
        )

    def _draw(self, out: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
        import numpy as np

        left = np.delete(np.arange(len(self.valid_configs)), out)
        drawn: list[int] = rng.permutation(left)[:count].tolist()
        return drawn

    def _covariances(self, seen: EvaluatedRows, earlier: EvaluatedRows | None) -> list[Covariance]:
        """Those to weigh by: the last two fitted, each by the first so many rows, and one that is not fitted.

        Fitted only now and then, they are remembered from one batch to the next.
        """
        until = [count for count in FIT_ROW_COUNTS if count <= len(seen.rows)][-MAX_FITTED_SURROGATES:]
        first = [
            self._training_data(EvaluatedRows(seen.rows[:count], seen.values[:count]), earlier)
            for count in until or [0]
        ]
        fitted = [self._fit(known) for known in first if known]
        return [
            *fitted,
            prior_covariance(self._scales[: len(self.valid_configs.names) + (earlier is not None)]),
        ]

    def _fit(self, known: _TrainingData) -> Covariance:
        key = known.inputs.tobytes() + known.targets.tobytes()
        if key not in self._fitted:
            while len(self._fitted) > MAX_FITTED_SURROGATES:
                del self._fitted[next(iter(self._fitted))]
            self._fitted[key] = fit_covariance(
                known.inputs, known.targets, self._scales[: known.inputs.shape[1]]
            )
        return self._fitted[key]

    @cached_property
    def _scales(self) -> list[np.ndarray]:
        """Of the knobs, and of this run against the one before."""
        return distances([*self.valid_configs.domains, (False, True)])

    def _pool(self, out: np.ndarray, bests: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The rows that are weighed: all that are left, or a sample of them with the neighbours of the best."""
        import numpy as np

        if len(self.valid_configs) <= MAX_POOL_ROWS:
            return np.delete(np.arange(len(self.valid_configs)), out)
        drawn = rng.integers(0, len(self.valid_configs), MAX_POOL_ROWS)
        return np.setdiff1d(np.concatenate([drawn, self._neighbours_of(bests)]), out)

    def _neighbours_of(self, rows: np.ndarray) -> np.ndarray:
        """The rows that differ from one of these in one knob."""
        import numpy as np

        return np.unique(np.concatenate([self.valid_configs.neighbours(row) for row in rows.tolist()]))

    def _expand_pool(
        self, covariances: Sequence[Covariance], known: _TrainingData, pool: np.ndarray, out: np.ndarray
    ) -> tuple[_SurrogateEnsemble, np.ndarray]:
        """What is expected of the pool; where that is but a sample, of neighbours of its most promising rows too."""
        import numpy as np

        beliefs = self._condition(covariances, known, pool)
        for _ in range(POOL_EXPANSIONS if len(self.valid_configs) > MAX_POOL_ROWS else 0):
            order = np.argsort(-beliefs.expected_improvement(), kind="stable")
            fresh = np.setdiff1d(
                self._neighbours_of(pool[order[:MAX_BEST_ROWS]]), np.concatenate([out, pool])
            )
            if not len(fresh):
                break
            pool = np.concatenate(
                [pool[order[:MAX_SHORTLIST_ROWS]], fresh, self._left_around(known.best_rows, out)]
            )
            pool = np.unique(pool)
            beliefs = self._condition(covariances, known, pool)
        return beliefs, pool

    def _left_around(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.setdiff1d(self._neighbours_of(rows), out)

    def _condition(
        self, covariances: Sequence[Covariance], known: _TrainingData, pool: np.ndarray
    ) -> _SurrogateEnsemble:
        import numpy as np

        asked = self.valid_configs.rows[pool]
        if known.inputs.shape[1] > asked.shape[1]:
            asked = np.column_stack([asked, np.ones(len(asked), dtype=np.int16)])
        posteriors = [Posterior(covariance, known.inputs, known.targets, asked) for covariance in covariances]
        return _SurrogateEnsemble(posteriors, float(known.targets.max()))

    def _choose(
        self, beliefs: _SurrogateEnsemble, pool: np.ndarray, known: _TrainingData, count: int
    ) -> list[int]:
        """The most promising first, each as if those before it had turned out as expected."""
        import numpy as np

        near = np.isin(pool, self._neighbours_of(known.best_rows))
        turns = MIN_UNCERTAINTY_FACTOR, known.uncertainty_factor
        orders = [np.argsort(-beliefs.expected_improvement(curiosity), kind="stable") for curiosity in turns]
        likely = np.concatenate([order[: MAX_SHORTLIST_ROWS // len(turns) + count] for order in orders])
        kept = np.union1d(likely, np.flatnonzero(near))
        beliefs.restrict(kept)
        pool = pool[kept]
        free, chosen = np.ones(len(pool), dtype=bool), list[int]()
        while free.any() and len(chosen) < count:
            improvement = beliefs.expected_improvement(turns[len(chosen) % len(turns)])
            index = int(np.argmax(np.where(free, improvement, -math.inf)))
            free[index] = False
            chosen.append(int(pool[index]))
            beliefs.condition_on_mean(index)
        return chosen


def _uncertainty_factor(values: np.ndarray) -> float:
    """Of every other row: the more, the more rows were seen since the first that is as good as the best."""
    import numpy as np

    ran = np.nan_to_num(values, nan=-math.inf)
    if not np.isfinite(ran).any():
        return MIN_UNCERTAINTY_FACTOR
    since = len(ran) - 1 - int(np.argmax(ran >= ran.max() - MIN_LOG_GAIN))
    return min(MIN_UNCERTAINTY_FACTOR + since / PATIENCE_ROWS, MAX_UNCERTAINTY_FACTOR)


def _best_and_latest(seen: EvaluatedRows) -> EvaluatedRows:
    """The best and the latest."""
    import numpy as np

    if len(seen.rows) <= MAX_REMEMBERED_BEST + MAX_REMEMBERED_LATEST:
        return seen
    earlier = np.nan_to_num(seen.values[:-MAX_REMEMBERED_LATEST], nan=-math.inf)
    best = np.sort(np.argsort(-earlier, kind="stable")[:MAX_REMEMBERED_BEST])
    kept = np.concatenate([best, np.arange(len(seen.rows) - MAX_REMEMBERED_LATEST, len(seen.rows))])
    return EvaluatedRows(seen.rows[kept], seen.values[kept])


def _align(earlier: EvaluatedRows, seen: EvaluatedRows) -> np.ndarray:
    """The earlier values, shifted so that they agree in the mean with those of the same rows seen now."""
    import numpy as np

    now = dict(zip(seen.rows.tolist(), seen.values.tolist(), strict=True))
    apart = [
        now[row] - value
        for row, value in zip(earlier.rows.tolist(), earlier.values, strict=True)
        if row in now
    ]
    both = np.array(apart)[np.isfinite(apart)]
    return earlier.values + (float(both.mean()) if len(both) else 0.0)


def _standardise(values: np.ndarray) -> np.ndarray:
    """Values of mean 0 and variance 1, everything that is bad alike."""
    import numpy as np

    ran = values[np.isfinite(values)]
    filled = np.where(np.isfinite(values), values, ran.min())
    good = np.maximum(filled, max(np.quantile(filled, BAD_QUANTILE), np.quantile(ran, SLOW_QUANTILE)))
    spread = float(good.std())
    flat: np.ndarray = (good - good.mean()) / (spread if spread > 0 else 1.0)
    return flat
