"""report.html in a real headless Chromium: opened, clicked through, on a phone, in the dark, and under attack."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.review.reporting import gather, write_report
from hillclimb.harness.report.page import PageSources, render
from hillclimb.harness.report.page_ledger import read_history
from hillclimb.harness.report.page_packs import Diff
from tests.harness.report.page_browser import in_browser, visit
from tests.harness.report.page_night import CASE, TAG, Night

pytestmark = in_browser

PHONE = {"viewport": {"width": 360, "height": 780}, "is_mobile": True, "has_touch": True}
CANDIDATES = 80


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return Night(tmp_path_factory.mktemp("night"), CANDIDATES).write()


@pytest.fixture(scope="module")
def ledger(night: Night) -> Ledger:
    return Ledger.read(night.ledger)


@pytest.fixture(scope="module")
def report(night: Night) -> Path:
    return write_report(Repository.open(night.root), CASE, TAG, None)


def test_it_opens_and_tells_the_story(browser: Browser, report: Path, ledger: Ledger) -> None:
    assert ledger.remeasured
    with visit(browser, report) as seen:
        assert seen.text("h1 .best") == f"{ledger.remeasured.speedup.estimate:.2f}×"
        assert "the budget of 80 candidates is used up" in seen.text(".state")
        assert seen.count("#wins tbody tr") == len(ledger.wins)
        assert seen.count(".chart circle.win") == len(ledger.wins)
        assert seen.count("#phases li") == len(ledger.turns)
        assert seen.text("#found") == "80 candidates"
        assert seen.text("#calls-found") == f"{len(ledger.calls)} of {len(ledger.calls)} calls"
        for words in ("AMD EPYC 7763", "bubblewrap", "noise floor", "first against last", "3f3f3f3f"):
            assert words in seen.text("#environment")
        assert "MM_ORDER" in seen.text("#knobs .shares")
        assert "packing" in seen.text("#phases")
        assert "square 512" in seen.text("#profile")
        assert "patience" in seen.text("#cost")


@pytest.mark.slow(3)
def test_candidates_are_filtered_sorted_and_paged(browser: Browser, report: Path, ledger: Ledger) -> None:
    with visit(browser, report) as seen:
        page = seen.page
        assert seen.count("#list tbody tr") == 50
        page.get_by_role("button", name="Next").first.click()
        assert seen.count("#list tbody tr") == CANDIDATES - 50
        page.select_option("#filters [name=verdict]", "group:kept")
        assert seen.count("#list tbody tr") == len(ledger.wins)
        page.select_option("#filters [name=order]", "fastest")
        assert seen.text("#list tbody tr td.n") == f"#{ledger.wins[-1].n}"
        page.get_by_role("button", name="Clear").first.click()
        expect(page.locator("#found")).to_have_text("80 candidates")
        for name, value, expected in (
            ("author", "llm", sum(each.proposal.author == "llm" for each in ledger.candidates)),
            ("family", "tiling", sum(each.proposal.family == "tiling" for each in ledger.candidates)),
            ("phase", "ablate", 1),
            (
                "verdict",
                "crashed",
                sum(bool(e.judged and e.judged.reason == "crashed") for e in ledger.candidates),
            ),
        ):
            page.select_option(f"#filters [name={name}]", value)
            assert seen.text("#found").startswith(f"{expected} of "), name
            page.select_option(f"#filters [name={name}]", "")
        page.fill("#filters [name=text]", "sigsegv CALL")
        found = [each.n for each in ledger.candidates if each.judged and "SIGSEGV" in each.judged.detail]
        shown = page.locator("#list tbody td.n").all_inner_texts()
        assert shown == [f"#{n}" for n in reversed(found)]
        assert seen.count(".chart path.hits") == 1


def test_a_candidate_opens_with_everything_known_of_it(
    browser: Browser, report: Path, ledger: Ledger
) -> None:
    win = next(each for each in ledger.wins if each.proposal.edits)
    assert win.judged
    assert win.judged.speedup
    with visit(browser, report) as seen:
        page = seen.page
        page.fill("#filters [name=text]", f"#{win.n}")
        page.locator("#list tbody tr td.idea").first.click()
        seen.wait_for_sheet(win.n)
        sheet = seen.text("dialog")
        for words in (
            win.proposal.idea,
            "kept",
            f"{win.judged.speedup.estimate:.3f}×",
            win.proposal.family,
            str(win.judged.commit),
            "passed, 56 calls compared",
            "decide",
            "needed",
            "kernel.py",
        ):
            assert words in sheet, words
        assert seen.count("dialog .diff .add") > 5
        assert seen.count("dialog .diff .cut") > 5
        assert f"+# version {win.n}" in page.locator("dialog .diff .add").all_inner_texts()
        page.keyboard.press("Escape")
        seen.wait_until_closed()
        assert page.evaluate("location.hash") == ""


def test_a_rejection_shows_reason_and_detail(browser: Browser, report: Path, ledger: Ledger) -> None:
    wrong = next(each for each in ledger.candidates if each.judged and each.judged.reason == "wrong_result")
    with visit(browser, report) as seen:
        seen.open_candidate(wrong.n)
        sheet = seen.text("dialog")
        assert "wrong result" in sheet
        assert "41 times the budget" in sheet
        assert "differs from the reference" in sheet


@pytest.mark.slow(3)
def test_addresses_back_and_neighbours(browser: Browser, report: Path) -> None:
    with visit(browser, report, "#n9") as seen:
        page = seen.page
        seen.wait_for_sheet(9)
        page.get_by_role("button", name="Next in the list").click()
        seen.wait_for_sheet(8)
        page.keyboard.press("ArrowLeft")
        seen.wait_for_sheet(9)
        page.get_by_role("button", name="Close").click()
        seen.wait_until_closed()
        page.locator("#wins tbody a").first.click()
        seen.wait_until_open()
        page.go_back()
        seen.wait_until_closed()
        page.evaluate("location.hash = 'n99999'")
        page.evaluate("location.hash = 'n1e9999'")
        assert not page.evaluate("document.querySelector('dialog').open")


@pytest.mark.slow(2)
def test_the_curve_is_clicked_and_walked(browser: Browser, report: Path, ledger: Ledger) -> None:
    win = ledger.wins[2].n
    with visit(browser, report) as seen:
        page = seen.page
        spot = page.locator(f".chart circle.win[data-n='{win}']").bounding_box()
        assert spot
        page.mouse.move(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
        assert f"#{win}" in seen.text(".tip")
        page.mouse.down()
        page.mouse.up()
        seen.wait_for_sheet(win)
        page.keyboard.press("Escape")
        page.focus("#chart")
        for key in ("ArrowRight", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        seen.wait_until_open()
        page.keyboard.press("Escape")
        assert seen.text("#scale") == "Linear axis"
        page.click("#scale")
        assert seen.text("#scale") == "Log axis"


@pytest.mark.slow(2)
def test_it_works_from_the_keyboard_alone(browser: Browser, report: Path) -> None:
    with visit(browser, report) as seen:
        page = seen.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.focus("#list tbody tr:nth-child(3) a")
        page.keyboard.press("Enter")
        seen.wait_until_open()
        assert page.evaluate("document.activeElement.textContent") == "Close"
        page.keyboard.press("Enter")
        seen.wait_until_closed()
        assert page.evaluate(
            "document.activeElement === document.querySelector('#list tbody tr:nth-child(3) a')"
        )


@pytest.mark.slow(4)
def test_dark_and_light(browser: Browser, report: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with visit(browser, report, color_scheme="light") as seen:
        light = seen.page.evaluate(ground)
    with visit(browser, report, color_scheme="dark") as seen:
        page = seen.page
        dark = page.evaluate(ground)
        assert _lightness(dark) < 60 < 200 < _lightness(light)
        page.click("#theme")
        assert page.evaluate(ground) == light
        page.click("#theme")
        assert page.evaluate(ground) == dark
        page.reload()
        assert seen.text("#theme") == "Theme: dark"


@pytest.mark.slow(1)
def test_print_is_dark_on_light(browser: Browser, report: Path) -> None:
    with visit(browser, report, color_scheme="dark") as seen:
        seen.page.emulate_media(media="print")
        ink, ground = seen.page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        assert _lightness(ink) < 60 < 200 < _lightness(ground)
        assert seen.page.locator("nav").is_hidden()


@pytest.mark.slow(1, but=["light"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, report: Path, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for every colour that text has, on the ground it stands on."""
    with visit(browser, report, "#n9", color_scheme=scheme) as seen:
        seen.wait_for_sheet(9)
        low = seen.page.evaluate(CONTRASTS)
    assert low == []


CONTRASTS = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (value) => value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = numbers(colour).map((value) => linear(value / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const isSolid = (colour) => numbers(colour).length < 4 || numbers(colour)[3] > .99;
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return isSolid(colour) ? colour : ground(element.parentElement);
  };
  const isText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const left = "svg, script, option, :disabled, .skip";
  const found = new Set();
  for (const element of document.querySelectorAll("body *")) {
    if (!isText(element) || !element.offsetParent || element.closest(left)) continue;
    const pair = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
    if (ratio < 4.5) found.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...found];
}"""


@pytest.mark.slow(2, but=["360"])
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, report: Path, width: int) -> None:
    with visit(browser, report, viewport={"width": width, "height": 780}) as seen:
        assert seen.overflow() <= 0
        for n in (9, 18, 12):
            seen.open_candidate(n)
            assert seen.overflow() <= 0


@pytest.mark.slow(1)
def test_a_phone_can_tap_through_it(browser: Browser, report: Path) -> None:
    with visit(browser, report, **PHONE) as seen:
        page = seen.page
        assert seen.count("#list tbody tr") == 20
        page.locator("#list tbody tr").nth(1).tap()
        seen.wait_until_open()
        assert seen.overflow() <= 0
        page.get_by_role("button", name="Close").tap()
        seen.wait_until_closed()


def test_without_scripts_it_still_tells_most(browser: Browser, report: Path, ledger: Ledger) -> None:
    with visit(browser, report, java_script_enabled=False) as seen:
        assert seen.count("#wins tbody tr") == len(ledger.wins)
        assert "Scripts are off" in seen.text(".masthead")


@pytest.mark.slow(1)
def test_an_old_browser_is_told_so(browser: Browser, report: Path) -> None:
    with visit(browser, report, init="delete window.DecompressionStream") as seen:
        seen.open_candidate(9)
        assert "cannot unpack" in seen.text("dialog .note")


HOSTILE = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=2</script>",
    "<!--<script>",
    "<img src=x onerror='window.pwned=3'>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus='window.pwned=4",
    "</style><style>*{display:none}</style>",
    "{{ 7 * 7 }}{% raw %}",
    "]]>&lt;b&gt;&amp;",
    "line\u2028separator\u2029and \x00 \x1b[31m \u202eesrever \ud800".replace("\ud800", "\ufeff"),
    "javascript:alert(2)",
    "__proto__",
    "https://example.invalid/beacon.png",
    "x" * 3000,
)


def _hostile(n: int, proposal: Proposal) -> Proposal:
    text = HOSTILE[n % len(HOSTILE)]
    path = f"docs/{n}.md" if n % 3 else f"docs/<img src=x onerror=alert({n})>.md"
    edits = (Edit(path=path, content=f"{text}\n@@ -1 +1 @@\ndiff --git a/x b/x\n--- {text}\n"),)
    return proposal.model_copy(update={"idea": text, "family": text, "edits": edits, "knobs": {}})


def test_hostile_texts_are_inert(browser: Browser, tmp_path: Path) -> None:
    night = Night(tmp_path / "night", 2 * len(HOSTILE) + 2, change=_hostile).write()
    lines = night.ledger.read_text().replace(
        '"detail":""', '"detail":"<img src=x onerror=alert(9)></script>"'
    )
    lines = lines.replace("gpt-5-mini", "<b onclick=alert(1)>model</b>").replace("timeout", "<i>timeout</i>")
    lines = lines.replace("the sweep's last 11", "<script>window.pwned=5</script> the sweep's last 11")
    night.ledger.write_text(lines)
    report = write_report(Repository.open(night.root), CASE, TAG, tmp_path / "hostile.html")
    for anchor in ("", "#n<img src=x onerror=alert(1)>", "#n9%22%3E%3Cscript%3E"):
        with visit(browser, report, anchor) as seen:
            own = seen.count("script")
            assert seen.count("img, iframe, object, embed, main svg[onload], main style, main script") == 0
            assert seen.page.evaluate("window.pwned") is None
    with visit(browser, report, viewport={"width": 360, "height": 700}) as seen:
        for n in range(1, len(HOSTILE) + 1):
            seen.open_candidate(n)
            assert HOSTILE[n % len(HOSTILE)][:4] in seen.text("dialog .title"), n
            assert seen.count("dialog .diff div.file") == 1, n
            assert seen.overflow() <= 0, n
        assert seen.count("img, iframe, main script, dialog script") == 0
        assert seen.count("script") == own
        assert seen.page.evaluate("window.pwned") is None


def test_an_attack_that_works_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>x</p><img src='http://127.0.0.1:9/beacon.png'><script>alert(1)</script>")
    with pytest.raises(AssertionError) as noticed, visit(browser, page) as seen:
        seen.page.wait_for_timeout(100)
    assert "request: http://127.0.0.1:9/beacon.png" in str(noticed.value)
    assert "dialog: 1" in str(noticed.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("empty", "", marks=pytest.mark.slow(1)),
        ("torn", '{"kind":"opened","case":"demo/toy"'),
        pytest.param("noise", "\x00\xff\nnull\n[]\n{}\n42\n", marks=pytest.mark.slow(1)),
        (
            "proposed only",
            '{"kind":"proposed","n":1,"time":1.0,"proposal":{"author":"llm","idea":"x","edits":[]}}\n',
        ),
    ],
)
def test_a_run_that_has_hardly_begun(browser: Browser, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "ledger.jsonl").write_text(text)
    page = tmp_path / "report.html"
    page.write_bytes(render(PageSources(tmp_path, read_history(tmp_path / "ledger.jsonl"))))
    with visit(browser, page) as seen:
        assert "no win so far" in seen.text(".claim")
        assert seen.text(".state").startswith("Unfinished.")
        assert seen.overflow() <= 0


@pytest.mark.slow(4)
def test_ten_thousand_candidates_open_and_filter_quickly(
    browser: Browser, night: Night, tmp_path: Path
) -> None:
    """The figures with git, samples and a quiet machine are in docs/evidence/report_size.json."""
    few = gather(Repository.open(night.root), night.folder)
    chronicle = few.chronicle
    first = list(chronicle.candidates)
    for n in range(len(first) + 1, 10_001):
        like = first[n % len(first)]
        chronicle.candidates.append(type(like)(**{**vars(like), "n": n}))
    diffs = {n: Diff(few.diffs[1 + n % len(first)].text + f"\n# {n}", "") for n in range(1, 10_001)}
    began = time.process_time()
    page = render(PageSources(tmp_path, chronicle, diffs))
    assert time.process_time() - began < 10
    assert len(page) < 15e6
    path = tmp_path / "large.html"
    path.write_bytes(page)
    began = time.monotonic()
    with visit(browser, path, "#n5000") as seen:
        seen.wait_for_sheet(5000)
        assert time.monotonic() - began < 10
        assert seen.count("dialog .diff div") > 5
        seen.page.keyboard.press("Escape")
        took = seen.page.evaluate(FILTER)
        assert seen.text("#found").endswith(" of 10,000 candidates")
        assert took < 1000
        assert seen.count("#list tbody tr") == 50


FILTER = """() => {
  const began = performance.now(), form = document.getElementById("filters");
  form.elements.text.value = "tile 64";
  form.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""


def _lightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


@pytest.mark.parametrize("surroundings", [{}, PHONE])
def test_whatever_can_be_hit_is_24_pixels_wide_and_high(
    browser: Browser, report: Path, surroundings: dict[str, object]
) -> None:
    with visit(browser, report, **surroundings) as seen:
        small = seen.page.evaluate(
            """() => [...document.querySelectorAll("a, button, select, input, summary, [role=button]")]
              .map((one) => [one.outerHTML.slice(0, 90), one.getBoundingClientRect()])
              .filter(([, box]) => box.width && (box.width < 24 || box.height < 24))
              .map(([html, box]) => `${html}: ${box.width} x ${box.height}`)"""
        )
    assert [one for one in small if 'class="skip"' not in one] == []


def test_what_is_empty_is_left_out(browser: Browser, tmp_path: Path) -> None:
    short = Night(tmp_path / "short", 0).write()
    page = write_report(Repository.open(short.root), CASE, TAG, None)
    with visit(browser, page) as seen:
        for section in ("wins", "candidates", "calls"):
            assert not seen.page.locator(f"#{section}").is_visible()
            assert seen.count(f'nav a[href="#{section}"]') == 0
