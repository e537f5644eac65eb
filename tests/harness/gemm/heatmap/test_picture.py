"""Pictures of efficiencies."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.heatmap.picture import draw, order, paint
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.shape import GemmShape


def portfolio(rows: int, columns: int) -> Portfolio:
    times = np.random.default_rng(1).lognormal(0, 0.2, (rows, columns))
    times[0, 0] = np.nan
    shapes = tuple(GemmShape(f"shape{row}", row + 1, 64, 64, "bf16") for row in range(rows))
    return Portfolio(
        shapes, tuple(f"kernel{column}" for column in range(columns)), times, np.zeros((rows, columns))
    )


def test_the_best_in_the_mean_stand_first() -> None:
    known = portfolio(5, 7)
    means = known.efficiency.mean(axis=0)
    assert [means[column] for column in order(known)] == sorted(means, reverse=True)
    assert sorted(order(known, [2, 5])) == [2, 5]


def test_every_cell_is_drawn_and_named() -> None:
    known = portfolio(5, 7)
    columns = order(known)
    matrix, bar = paint(known, columns, ["kernel3"]).axes
    drawn = matrix.images[0].get_array()
    assert np.array_equal(np.ma.filled(drawn, 0.0), known.efficiency[:, columns])
    assert [label.get_text() for label in matrix.get_yticklabels()] == [shape.name for shape in known.shapes]
    names = [label.get_text() for label in matrix.get_xticklabels()]
    assert names == [known.kernels[column] for column in columns]
    marked = [label.get_text() for label in matrix.get_xticklabels() if label.get_fontweight() == "bold"]
    assert marked == ["kernel3"]
    assert "best kernel" in bar.get_ylabel()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 60), (80, 2)])
def test_labels_have_room(rows: int, columns: int) -> None:
    """Apart by more than the size of a letter."""
    figure = paint(portfolio(rows + 1, columns), range(columns), [])
    figure.canvas.draw()
    matrix = figure.axes[0]
    for labels, axis in ((matrix.get_yticklabels(), 1), (matrix.get_xticklabels(), 0)):
        places = sorted(label.get_window_extent().get_points().mean(axis=0)[axis] for label in labels)
        sizes = [np.ptp(label.get_window_extent().get_points()[:, axis]) for label in labels]
        assert all(two - one > 0.9 * max(sizes) for one, two in itertools.pairwise(places))


def test_pictures_are_the_same_each_time_and_of_two_kinds(tmp_path: Path) -> None:
    known = portfolio(3, 4)
    one, two = (draw(known, tmp_path / name, ["kernel1"]) for name in ("a.svg", "b.svg"))
    assert one.read_bytes() == two.read_bytes()
    assert draw(known, tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"ends with \.png, \.svg or \.html"):
        draw(known, tmp_path / "c.pdf")
    with pytest.raises(UsageError, match="no kernel 'kernel9'"):
        draw(known, tmp_path / "d.png", ["kernel9"], only_chosen=True)
    assert not (tmp_path / "d.png").exists()
