"""The page of efficiencies, in a real headless Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from playwright.sync_api import Browser, expect

from hillclimb.harness.gemm.heatmap.page import draw_page, page_data, render_page
from hillclimb.harness.gemm.heatmap.picture import LOWEST, order
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.shape import GemmShape
from tests.harness.report.page_browser import in_browser, visit

ROWS, COLUMNS, WIDTH, HEIGHT = 200, 600, 8, 14
PIXEL = """([x, y]) => {
  const copy = document.createElement("canvas"), pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(document.getElementById("map"), -x, -y);
  return [...pen.getImageData(0, 0, 1, 1).data];
}"""
HOSTILE = "</script><img src=x onerror=alert(1)> & <b>k</b>"


def portfolio(rows: int = ROWS, columns: int = COLUMNS, name: str = "kernel0") -> Portfolio:
    times = np.random.default_rng(1).lognormal(0, 0.2, (rows, columns))
    times[0, 1:3] = np.nan
    shapes = tuple(GemmShape(f"shape{row}", row + 1, 64, 128, "bf16") for row in range(rows))
    kernels = (name, *(f"kernel{column}" for column in range(1, columns)))
    return Portfolio(shapes, kernels, times, np.zeros((rows, columns)))


KNOWN = portfolio()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_page(KNOWN, tmp_path_factory.mktemp("page") / "all.html", ["kernel7", "kernel9"])


def test_a_page_has_all_times_in_the_order_of_the_picture() -> None:
    data = page_data(KNOWN, ["kernel7"])
    columns = order(KNOWN)
    assert data["kernels"] == [KNOWN.kernels[column] for column in columns]
    times = np.array(data["milliseconds"], dtype=float)
    assert np.allclose(times, KNOWN.milliseconds[:, columns], rtol=1e-5, equal_nan=True)
    found = re.search(r'id="data">(.*?)</script>', render_page(KNOWN, ["kernel7"]))
    assert found and json.loads(found[1]) == json.loads(json.dumps(data))


@in_browser
def test_cells_have_the_colour_of_their_efficiency(browser: Browser, page: Path) -> None:
    columns = order(KNOWN)
    shades = page_data(KNOWN, [])["shades"]
    assert isinstance(shades, list)
    with visit(browser, page) as seen:
        assert seen.text("#shown") == f"{ROWS} of {ROWS} shapes, {COLUMNS} of {COLUMNS} kernels"
        for row, place in ((0, 0), (3, 5), (199, 599), (77, 311)):
            value = KNOWN.efficiency[row, columns[place]]
            at = [place * WIDTH + 4, row * HEIGHT + 7]
            pixel = seen.page.evaluate(PIXEL, at)
            share = min(1.0, max(0.0, (value - LOWEST) / (1 - LOWEST)))
            expected = to_rgb(shades[int(np.floor(share * (len(shades) - 1) + 0.5))])
            assert np.allclose(np.array(pixel[:3]) / 255, expected, atol=0.02) or not value


@in_browser
def test_a_row_stands_beside_its_name(browser: Browser, page: Path) -> None:
    with visit(browser, page) as seen:
        name = seen.page.locator("#names button").nth(150)
        name.scroll_into_view_if_needed()
        label, cells = name.bounding_box(), seen.page.locator("#map").bounding_box()
        assert label and cells
        assert (cells["width"], cells["height"]) == (COLUMNS * WIDTH, ROWS * HEIGHT)
        assert label["y"] - cells["y"] == pytest.approx(150 * HEIGHT, abs=1)


@in_browser
def test_a_cell_is_told_by_pointer_and_by_keys(browser: Browser, page: Path) -> None:
    kernel = KNOWN.kernels[order(KNOWN)[2]]
    with visit(browser, page) as seen:
        seen.page.locator("#map").hover(position={"x": 2 * WIDTH + 3, "y": HEIGHT + 3})
        time = KNOWN.milliseconds[1, order(KNOWN)[2]]
        expect(seen.page.locator("#cell")).to_contain_text(
            f"shape1 (2 x 64 x 128, bf16)\n{kernel}\n{time:.6g} ms"
        )
        seen.page.locator("#view").focus()
        seen.page.keyboard.press("ArrowLeft")
        expect(seen.page.locator("#cell")).to_contain_text(KNOWN.kernels[order(KNOWN)[1]])
        for _ in range(3):
            seen.page.keyboard.press("ArrowUp")
        expect(seen.page.locator("#cell")).to_contain_text("shape0 (1 x")


@in_browser
def test_a_shape_orders_the_kernels_and_lists_its_best(browser: Browser, page: Path) -> None:
    best = [KNOWN.kernels[column] for column in np.argsort(-KNOWN.efficiency[42])[:12]]
    with visit(browser, page) as seen:
        seen.page.locator("#names button", has_text="shape42").click()
        expect(seen.page.locator("#shape")).to_have_text("The best for shape42")
        assert seen.page.locator("#best tbody tr td:first-child").all_inner_texts() == best
        assert seen.page.locator("#best tbody tr td:last-child").first.inner_text() == "1.000"
        seen.page.locator("#map").hover(position={"x": 3, "y": 42 * HEIGHT + 3})
        expect(seen.page.locator("#cell")).to_contain_text(best[0])
        seen.page.locator("#names button.open").click()
        assert seen.page.locator("#best").is_hidden()


@in_browser
def test_shapes_and_kernels_are_found_by_parts_of_their_names(browser: Browser, page: Path) -> None:
    with visit(browser, page) as seen:
        seen.page.fill("#shapes", "shape19 bf16")
        seen.page.fill("#kernels", "KERNEL 59")
        expect(seen.page.locator("#shown")).to_have_text("11 of 200 shapes, 16 of 600 kernels")
        seen.page.fill("#kernels", "")
        seen.page.check("#chosen")
        expect(seen.page.locator("#shown")).to_have_text("11 of 200 shapes, 2 of 600 kernels")
        seen.page.fill("#shapes", "nothing")
        expect(seen.page.locator("#shown")).to_have_text("0 of 200 shapes, 2 of 600 kernels")
        seen.page.locator("#view").focus()
        seen.page.keyboard.press("ArrowDown")


@in_browser
def test_names_are_text_whatever_they_are(browser: Browser, tmp_path: Path) -> None:
    file = draw_page(portfolio(3, 4, HOSTILE), tmp_path / "page.html", [HOSTILE])
    with visit(browser, file) as seen:
        seen.page.locator("#names button").first.click()
        expect(seen.page.locator("#best tr.chosen td").first).to_have_text(HOSTILE)
        assert seen.count("img") == 0


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Browser, page: Path, scheme: str) -> None:
    phone = {"viewport": {"width": 360, "height": 780}, "color_scheme": scheme}
    with visit(browser, page, **phone) as seen:
        assert seen.overflow() <= 0
