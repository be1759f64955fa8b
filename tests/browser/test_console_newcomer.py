"""From `make up` to the first wait that is satisfied, by clicks only, in less than two minutes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import DESKTOP, HEIGHTS
from tests.browser.reading import heading
from tests.tidy.source_tree import ROOT

pytestmark = pytest.mark.xdist_group("newcomer")
_LIMIT_S = 120


@pytest.fixture
def made_up(console: None, tmp_path: Path) -> Iterator[str]:
    """The link that `make up` prints: the console, signed in."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = ["make", "--silent", "up", f"ARGS=--port 0 --home {tmp_path / 'home'}"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment | {"COLUMNS": "1000"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        found = next((line.split()[-1] for line in process.stdout if "#token=" in line), None)
        try:
            assert found is not None, (tmp_path / "log").read_text()
            yield found
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.stdout.read()
            sample = tmp_path / "home" / "sample.json"
            if sample.is_file():
                shutil.rmtree(json.loads(sample.read_text())["folder"])


def test_a_newcomer_comes_to_a_satisfied_wait_by_clicks_only(browser: Browser, request: pytest.FixtureRequest) -> None:
    began = monotonic()
    link = request.getfixturevalue("made_up")
    page = browser.new_page(viewport={"width": DESKTOP, "height": HEIGHTS[DESKTOP]})
    page.set_default_timeout(60_000)

    def click(name: str, role: str = "button") -> None:
        found = page.get_by_role("link" if role == "link" else "button", name=name, exact=True)
        expect(found).to_be_enabled(timeout=60_000)
        found.click()

    page.goto(link)
    expect(heading(page, "Fleet")).to_be_visible()
    click("Start the sample database")
    click("Replicate it", "link")
    click("Check")
    click("Create")
    click("Next: tables")
    # One of them has no key: that only its inserts are followed takes a consent.
    click("Choose it, with inserts only")
    click("Next: options")
    click("Next: check")
    click("Create sample")
    expect(heading(page, "sample")).to_be_visible()
    tables = page.get_by_role("navigation", name="Which tables are shown")
    expect(tables).to_contain_text(re.compile(r"9\s*all\s*9\s*live"), timeout=60_000)
    click("Freshness", "link")
    click("Wait")
    expect(page.get_by_role("status").filter(has_text="visible")).to_contain_text("in 9 tables")
    took = monotonic() - began
    page.close()
    assert took < _LIMIT_S, f"it took {took:.0f} s"
