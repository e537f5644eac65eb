"""A real headless Chromium that tells what a page did: its errors, its requests, its dialogs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

PATIENCE = 20_000
"""Milliseconds: the machine may be busy."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The browser on PATH; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


CHROMIUM = find_chromium()
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH; scripts/setup dev installs it")


@contextmanager
def run_chromium(program: str) -> Iterator[Browser]:
    """One browser for many pages."""
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*sandbox, "--disable-gpu"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that is open, and everything it should not have done."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note errors, requests for anything but the page itself, and dialogs."""
        note = self.complaints.append
        self.page.on("console", lambda message: note(f"console {message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: note(f"error: {error}"))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self._note_request(request.url))
        self.page.on("popup", lambda popup: note(f"popup: {popup.url}"))

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, url: str) -> None:
        if url.split("#")[0] != self.url and url != "data:,":
            self.complaints.append(f"request: {url[:200]}")

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def overflow(self) -> float:
        """Pixels by which the page, or the open sheet, is wider than what is seen of it."""
        wider: float = self.page.evaluate(
            """() => {
              const page = document.scrollingElement, sheet = document.querySelector("dialog[open]");
              return Math.max(page.scrollWidth - innerWidth, sheet ? sheet.scrollWidth - sheet.clientWidth : 0);
            }"""
        )
        return wider

    def open_candidate(self, n: int) -> None:
        """Through the address, and wait until its change is shown."""
        self.page.evaluate(f"location.hash = 'n{n}'")
        self.wait_for_sheet(n)

    def wait_for_sheet(self, n: int) -> None:
        """Until all of candidate n is shown."""
        expect(self.page.locator("dialog[open] h2")).to_have_text(f"#{n}")
        expect(self.page.locator("dialog h3", has_text="Change")).to_be_visible()

    def wait_until_open(self) -> None:
        expect(self.page.locator("dialog")).to_be_visible()

    def wait_until_closed(self) -> None:
        expect(self.page.locator("dialog")).to_be_hidden()


@contextmanager
def visit(browser: Browser, path: Path, anchor: str = "", **context: Any) -> Iterator[Visit]:
    """Open a file; on leaving, it must have complained of nothing."""
    init = context.pop("init", "")
    surroundings = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
    try:
        page = surroundings.new_page()
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        if init:
            page.add_init_script(init)
        visited = Visit(page, path.as_uri())
        visited.watch()
        page.goto(path.as_uri() + anchor)
        yield visited
        assert not visited.complaints, visited.complaints
    finally:
        surroundings.close()
