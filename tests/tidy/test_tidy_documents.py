"""The project's pages are whole: links and paths lead somewhere, every page is on the map, and none is a wall of text."""

from __future__ import annotations

import os.path
import re
from pathlib import PurePosixPath

import pytest
import yaml

from engine.model.fault import FaultKind
from engine.platform.settings import EngineSettings
from server.cli.manifest import parse
from server.connections.schemas import ConnectionPut
from server.settings import Settings
from server.subscriptions.schemas import SubscriptionPut
from tests.tidy.documents import Page, page, pages
from tests.tidy.source_tree import ROOT

WORDS_A_HEADING = 120
FOLDERS = ("engine", "penstock", "server", "web", "bench", "tests", "docs", "migrations", "deploy", ".ci")
_PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})(?:/[\w.\-]+)*/?")
MADE = {"server/static/console"}
"""Paths that a build makes."""


def _ids(each: Page) -> str:
    return each.path


def _target(each: Page, link: str) -> str:
    """The path below the root that a relative link means."""
    return os.path.normpath(PurePosixPath(each.path).parent / link.partition("#")[0])


@pytest.mark.parametrize("each", pages(), ids=_ids)
def test_links_lead_somewhere(each: Page) -> None:
    broken = []
    for link in each.links():
        if "://" in link:
            continue
        path = each.path if link.startswith("#") else _target(each, link)
        anchor = link.partition("#")[2]
        if not (ROOT / path).exists() or (anchor and anchor not in page(path).anchors()):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("each", pages(), ids=_ids)
def test_paths_that_are_named_exist(each: Page) -> None:
    named = [path for path in each.inline() if _PATH.fullmatch(path) and path.rstrip("/") not in MADE]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_map_leads_to_every_page() -> None:
    on_map = {
        _target(each, link)
        for each in (page("docs/README.md"), page("docs/decisions/README.md"))
        for link in each.links()
    }
    inside = {each.path for each in pages() if each.path.startswith("docs/")} - {"docs/README.md"}
    assert inside - on_map == set()


@pytest.mark.parametrize("each", [each for each in pages() if not each.generated], ids=_ids)
def test_headings_are_dense_enough_to_find_something(each: Page) -> None:
    """Tables and code can be skimmed as they are; what counts is prose."""
    words = len(each.prose.split())
    assert words <= WORDS_A_HEADING * len(each.headings()), "split the page, or give its parts headings"


def test_every_setting_and_fault_is_in_the_reference() -> None:
    settings, faults = page("docs/reference/settings.md").text, page("docs/reference/faults.md").text
    for model in (Settings, EngineSettings):
        for name in model.model_fields:
            assert f"`PENSTOCK_{name.upper()}`" in settings
    for kind in FaultKind:
        assert f"`{kind.value}`" in faults


def test_settings_that_are_named_exist() -> None:
    known = {f"PENSTOCK_{name.upper()}" for model in (Settings, EngineSettings) for name in model.model_fields}
    known |= {"PENSTOCK_TOKEN", "PENSTOCK_CONTROL_PASSWORD"}
    named = {name for each in pages() for name in re.findall(r"\bPENSTOCK_[A-Z_]+\b", each.text)}
    assert named - known == set()


@pytest.mark.parametrize("path", ["README.md", "docs/tutorial/first-copy.md", "docs/examples/shop.yaml"])
def test_files_for_apply_are_valid(path: str) -> None:
    texts = (
        [(ROOT / path).read_text()]
        if path.endswith(".yaml")
        else [b for lang, b in page(path).blocks() if lang == "yaml"]
    )
    assert texts
    for text in texts:
        for resource in parse(text, {"SHOP_PASSWORD": "…"}):
            model = ConnectionPut if resource.collection == "connections" else SubscriptionPut
            assert model.model_validate(resource.body)


def test_the_example_is_the_one_of_the_readme() -> None:
    block = next(text for language, text in page("README.md").blocks() if language == "yaml")
    assert yaml.safe_load(block) == yaml.safe_load((ROOT / "docs" / "examples" / "shop.yaml").read_text())


def test_a_wall_of_text_is_found() -> None:
    wall = Page("x.md", "# One\n\n" + "word " * 500 + "\n\n```\n" + "code " * 500 + "\n```\n")
    assert len(wall.prose.split()) == 502
    assert wall.headings() == ["One"]
    assert wall.anchors() == {"one"}
