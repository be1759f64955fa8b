"""What every page has to be, whatever it shows: fit for everybody's use, and no wider than the screen."""

from __future__ import annotations

from time import monotonic
from typing import Literal

from playwright.sync_api import Page

from tests.browser.chromium import HEIGHTS, PHONE
from tests.tidy.source_tree import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_VIOLATIONS = """
async (rules) => {
  const { violations } = await axe.run(document, { runOnly: rules, resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id} at ${node.target.join(" ")}: ${node.failureSummary}`));
}
"""
_NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => done()))"
_SETTLES_S = 3.0
_WIDER = """
() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const held = (element) => element !== null && (scrolls(element) || held(element.parentElement));
  const name = (element) => `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} “${element.textContent.slice(0, 60)}”`;
  const found = [...document.body.querySelectorAll("*")]
    .filter((element) => element.getBoundingClientRect().right > width + 1 && !held(element.parentElement))
    .map((element) => `${name(element)} ends at ${Math.round(element.getBoundingClientRect().right)} of ${width} px`);
  if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} of ${width} px wide`);
  return found;
}
"""


def expect_accessible(page: Page) -> None:
    """axe finds nothing serious, in light and in dark colours."""
    page.evaluate(AXE.read_text())
    found = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {violation}" for violation in page.evaluate(_VIOLATIONS, _RULES)]
    assert not found, "\n".join(found)


def narrow(page: Page) -> None:
    """From now on it is shown on a phone."""
    page.set_viewport_size({"width": PHONE, "height": HEIGHTS[PHONE]})


def wider_than_screen(page: Page) -> list[str]:
    """What reaches beyond the screen's right edge, and is not in a part that scrolls by itself.

    Charts follow a new width some frames later, so it counts only what stays.
    """
    found: list[str] = page.evaluate(_WIDER)
    deadline = monotonic() + _SETTLES_S
    while found and monotonic() < deadline:
        page.evaluate(_NEXT_FRAME)
        found = page.evaluate(_WIDER)
    return found
