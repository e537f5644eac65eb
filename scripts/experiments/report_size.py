"""How large and quick report.html is: `python -m scripts.experiments.report_size [--candidates N]`.

Builds a run of 10,000 candidates (ledger, commits, refs, samples, model calls, phases) in a temporary folder, writes
its page in a process of its own, and opens it in a headless Chromium where there is one. All of it is one part: an
output that has the figures is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.review.reporting import write_report
from scripts.experiments import frame
from tests.harness.report.page_browser import find_chromium, run_chromium, visit
from tests.harness.report.page_night import CASE, TAG, Night

REPEATS = 3
LIMITS = {"write_seconds": 10.0, "page_mb": 15.0}

FILTER = """(text) => {
  const began = performance.now(), form = document.getElementById("filters");
  form.elements.text.value = text;
  form.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""


def main() -> int:
    arguments = _arguments()
    if arguments.only_write:
        return _write(Path(arguments.only_write))
    output = frame.Output(arguments.output, {"candidates": arguments.candidates})
    if "write_seconds" not in output.found:
        with tempfile.TemporaryDirectory() as name:
            night = Night(Path(name) / "repository", arguments.candidates, win_every=20).write()
            output.save(**_measure(night))
    print(json.dumps(output.found, indent=2))
    return 0 if all(output.found[name] <= limit for name, limit in LIMITS.items()) else 1


def _arguments() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, default=frame.EVIDENCE / "report_size.json")
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--only-write", help=argparse.SUPPRESS)
    return parser.parse_args()


def _write(root: Path) -> int:
    """In a process of its own: the page, and what it took."""
    print(write_report(Repository.open(root), CASE, TAG, None))
    print(json.dumps({"cpu": sum(os.times()[:4])}))
    return 0


def _measure(night: Night) -> dict[str, object]:
    took = [_timed(night.root) for _ in range(REPEATS)]
    page = night.folder / "report.html"
    samples = sum(path.stat().st_size for path in (night.folder / "samples").iterdir())
    return {
        "candidates": night.candidates,
        "ledger_mb": round(night.ledger.stat().st_size / 1e6, 1),
        "samples_mb": round(samples / 1e6, 1),
        "write_seconds": round(statistics.median(wall for wall, _ in took), 2),
        "write_cpu_seconds": round(statistics.median(cpu for _, cpu in took), 2),
        "page_mb": round(page.stat().st_size / 1e6, 2),
        **_browse(page, night.candidates),
        "repeats": REPEATS,
        "clock": "wall, process start and git included; median of repeats. In the browser: until the curve and the "
        "list are there, until a candidate's diff is shown, and one filtering by text",
        "limits": LIMITS,
    }


def _timed(root: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "scripts.experiments.report_size", "--only-write", str(root)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.monotonic() - began, json.loads(done.stdout.splitlines()[-1])["cpu"]


def _browse(path: Path, candidates: int) -> dict[str, Any]:
    program = find_chromium()
    if program is None:
        return {"browser": "none on PATH"}
    with run_chromium(program) as browser:
        visits = [_look(browser, path, candidates) for _ in range(REPEATS)]
        version = browser.version
    middle = {name: round(statistics.median(each[name] for each in visits), 3) for name in visits[0]}
    return {"browser": f"Chromium {version}, headless", **middle}


def _look(browser: Any, path: Path, candidates: int) -> dict[str, float]:
    began = time.monotonic()
    with visit(browser, path) as seen:
        seen.page.locator("#list tbody tr").first.wait_for()
        seen.page.locator(".chart path.step").first.wait_for(state="attached")
        opened = time.monotonic() - began
        began = time.monotonic()
        seen.open_candidate(candidates // 2)
        shown = time.monotonic() - began
        seen.page.keyboard.press("Escape")
        return {"open_seconds": opened, "candidate_seconds": shown, "filter_seconds": _filter(seen.page)}


def _filter(page: Page) -> float:
    took: float = page.evaluate(FILTER, "panel main")
    return took / 1000


if __name__ == "__main__":
    sys.exit(main())
