"""Takes the pictures of the pages, with `holter serve` on: `python docs/make_page_pictures.py ADDRESS RUN`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent / "pictures"


def picture(browser: Any, address: str, path: str, name: str, width: int, height: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)  # leaves the token's cookie
    page.goto(address.partition("?")[0].rstrip("/") + path)
    page.wait_for_timeout(4000)  # the verdicts of the list come after its rows
    if width < 500:
        page.evaluate("document.querySelector('.cure').scrollIntoView()")
    page.screenshot(path=PICTURES / f"{name}.png")
    context.close()


def main() -> None:
    address, run = sys.argv[1:]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        picture(browser, address, "/", "serve-runs", 1280, 400, "light")
        picture(browser, address, f"/run/{run}", "serve-run", 1180, 850, "light")
        picture(browser, address, f"/run/{run}", "serve-phone", 390, 760, "dark")
        browser.close()


if __name__ == "__main__":
    main()
