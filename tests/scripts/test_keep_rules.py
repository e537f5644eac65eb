"""The simulated rules are the judge's own, and the usual rules do what their names say."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from harness.judge.evidence import agreement, e_value, is_futile, proves_gain, student_quantile
from scripts.experiments.keep_rules import (
    NEW,
    WIDTHS,
    Noise,
    draw,
    fit_noise,
    log_e,
    read_ratios,
    rooms,
    running,
    screen,
    student_tail,
    take_trial,
    weigh,
)
from scripts.experiments.usual_rules import kept_by, verdicts


def _values(rows: int, columns: int, effect: float) -> np.ndarray:
    return effect + 0.002 * np.random.default_rng(1).standard_normal((rows, columns))


def test_simulated_evidence_is_the_judges() -> None:
    values = _values(20, 8, 0.003)
    logs = log_e(*running(values), 0.001, WIDTHS)
    for row, log in zip(values, logs, strict=True):
        for n in range(2, 9):
            judged = e_value(list(row[:n]), 0.001)
            assert math.exp(log[n - 1]) == pytest.approx(judged, rel=1e-6, abs=1e-12)


def test_simulated_decisions_are_the_judges() -> None:
    values = _values(200, 20, 0.004)
    outcome = weigh(NEW.decide, values, 0.0025).decide(0.001)
    for row, passed, used in zip(values, outcome.passed, outcome.used, strict=True):
        assert (passed, used) == _decide(list(row), 0.0025, 0.001)


def test_simulated_screening_stops_where_the_judge_does() -> None:
    values = _values(200, 12, 0.004)
    outcome = screen(NEW.screen, values, 0.0025)
    for row, passed, used in zip(values, outcome.passed, outcome.used, strict=True):
        expected = _decide(list(row[: NEW.screen.blocks]), 0.0025, 0.1)
        assert used == expected[1]
        assert passed == expected[0] or used == NEW.screen.blocks, "only the cap leaves it to the best guess"


def _decide(values: list[float], minimum: float, alpha: float) -> tuple[bool, int]:
    for n in range(1, len(values) + 1):
        if proves_gain(values[:n], minimum, alpha):
            return True, n
        if is_futile(values[:n], minimum):
            return False, n
    return False, len(values)


@pytest.mark.parametrize("freedom", [3, 8])
def test_student_tail_inverts_the_quantile(freedom: int) -> None:
    t = np.array([student_quantile(0.99, freedom), -student_quantile(0.99, freedom)])
    assert student_tail(t, freedom) == pytest.approx([0.01, 0.99], abs=1e-9)


def test_simulated_room_is_the_judges() -> None:
    own, honest = _values(5, 6, 0.0), _values(5, 12, 0.0) / 4
    for row, known, room in zip(own, honest, rooms(own, honest), strict=True):
        judged = agreement(list(row), [0.0] * 6, list(known))
        assert room == pytest.approx(judged.room, rel=1e-9)


def test_noise_is_fitted_to_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "noise.json.gz"
    _record(path, pairs=60, blocks=40, pair_sd=0.002, block_sd=0.002)
    noise = fit_noise("softmax", read_ratios(path, "events")["softmax"])
    assert noise.offsets.std() == pytest.approx(0.002, rel=0.3)
    assert noise.residuals.std() == pytest.approx(0.002, rel=0.1)
    drawn = noise.pairs(np.random.default_rng(2), (20_000,), 4)
    assert abs(drawn.mean()) < 1e-4, "a coin gives every pair its sign"
    assert drawn.mean(1).std() == pytest.approx(math.hypot(noise.offsets.std(), 0.001), rel=0.1)


def _record(path: Path, pairs: int, blocks: int, pair_sd: float, block_sd: float) -> None:
    generator = random.Random(3)
    rows = []
    for pair in range(pairs):
        offset = generator.gauss(0, pair_sd)
        ratios = [offset + generator.gauss(0, block_sd) for _ in range(blocks)]
        taken = [_block(generator.choice(([0, 1, 1, 0], [1, 0, 0, 1])), ratio) for ratio in ratios]
        rows.append({"kind": "softmax", "pair": pair, "blocks": taken})
    with gzip.open(path, "wt") as file:
        json.dump(rows, file)


def _block(order: list[int], ratio: float) -> list[object]:
    return [order, [[6 * math.exp(ratio if side else 0)] * 2 for side in order], [1980, 40, 120, 0]]


def test_a_plain_gain_is_kept_and_identical_code_is_not() -> None:
    generator = np.random.default_rng(4)
    noise = Noise("plain", 0.001 * generator.standard_normal(50), 0.001 * generator.standard_normal((50, 40)))
    draws = draw(noise, 2000)
    assert take_trial(NEW, draws, 0.01, 0.0025).kept(1e-4).mean() > 0.99
    assert take_trial(NEW, draws, 0.0, 0.0025).kept(1e-4).sum() == 0


def _runs(generator: random.Random, milliseconds: float) -> list[list[float]]:
    return [[milliseconds * math.exp(generator.gauss(0, 0.01)) for _ in range(50)] for _ in range(3)]


def test_usual_rules_keep_half_of_all_identical_candidates() -> None:
    generator = random.Random(5)
    found = kept_by([verdicts(_runs(generator, 1.0), _runs(generator, 1.0)) for _ in range(400)])
    assert 150 < found["lower mean"] < 250
    assert 150 < found["best of 3"] < 250
    assert found["1 % on the median"] < 20


def test_usual_rules_by_hand() -> None:
    slow, fast, nearly = [[1.0, 1.1, 0.9]] * 3, [[0.9, 0.98, 0.9]] * 3, [[0.992] * 3] * 3
    assert verdicts(fast, slow) == {"lower mean": True, "1 % on the median": True, "best of 3": True}
    assert not any(verdicts(slow, fast).values())
    assert verdicts(nearly, slow)["1 % on the median"] is False
    late = [[2.0], [2.0], [0.5]]
    assert verdicts(late, slow) == {"lower mean": False, "1 % on the median": False, "best of 3": True}


def test_a_missing_reading_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"candidate: readings of \[1, 0, 1\] samples"):
        verdicts([[1.0], [], [1.0]], [[1.0]] * 3)
