"""How the console is served, the status page in its place, and how much of it a first visit loads."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from server import error_handlers, pages
from server.tracing import TraceMiddleware

BUILT = pages.FOLDER / "console"
FIRST_LOAD_LIMIT = 150_000
AS_BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The server's static files without a console."""
    return Path(shutil.copytree(pages.FOLDER, tmp_path / "static", ignore=shutil.ignore_patterns("console")))


@pytest.fixture
def client(folder: Path) -> TestClient:
    app = FastAPI()

    @app.get("/api/v1/things")
    def things() -> list[str]:
        return []

    @app.post("/api/v1/actions")
    def act() -> None:
        return None

    pages.install(app, folder)
    error_handlers.install(app)
    app.add_middleware(TraceMiddleware)
    return TestClient(app)


@pytest.fixture
def console(folder: Path) -> Path:
    """The folder of a built console, next to the server's files."""
    built = folder / "console"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<title>the console</title>")
    (built / "display.js").write_text("// before the first paint")
    (built / "assets" / "index-1a2b3c4d.js").write_text("export const much = 1;\n" * 200)
    return built


@pytest.mark.parametrize("path", ["/", "/static/status.js", "/static/status.css", "/static/icon.svg"])
def test_status_page_is_served_under_a_strict_policy(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_status_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/").text
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert links
    assert all(link.startswith("/static/") for link in links)
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", page)
    script = client.get("/static/status.js").text
    assert "innerHTML" not in script
    assert "localStorage" not in script
    assert set(re.findall(r'at\("([\w-]+)"\)', script)) <= set(re.findall(r'id="([\w-]+)"', page))


@pytest.mark.usefixtures("console")
@pytest.mark.parametrize("path", ["/", "/subscriptions/shop", "/subscriptions/shop.v2/tables/t1", "/connections"])
def test_every_page_of_the_console_has_an_address(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=AS_BROWSER)
    assert (answer.status_code, answer.text) == (200, "<title>the console</title>")
    assert answer.headers["Cache-Control"] == "no-cache"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.head(path, headers=AS_BROWSER).status_code == 200


@pytest.mark.usefixtures("console")
@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api", "/static/nothing", "/robots.txt", "/favicon.ico"])
def test_what_is_no_page_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=AS_BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.usefixtures("console")
def test_programs_get_problems_not_pages(client: TestClient) -> None:
    assert client.get("/nothing").json()["code"] == "not_found"
    assert client.post("/nothing", headers=AS_BROWSER).json()["code"] == "not_found"
    assert client.get("/api/v1/things", headers=AS_BROWSER).json() == []
    assert client.get("/api/v1/actions", headers=AS_BROWSER).json()["code"] == "method_not_allowed"


def test_without_a_console_its_addresses_lead_nowhere(client: TestClient) -> None:
    assert "status.js" in client.get("/", headers=AS_BROWSER).text
    assert client.get("/subscriptions/shop", headers=AS_BROWSER).status_code == 404


@pytest.mark.usefixtures("console")
def test_only_files_whose_name_tells_their_content_are_kept(client: TestClient) -> None:
    hashed = client.get("/static/console/assets/index-1a2b3c4d.js")
    assert hashed.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert hashed.headers["Content-Encoding"] == "gzip"
    for path in ("/static/console/index.html", "/static/console/display.js", "/static/status.js"):
        assert client.get(path).headers["Cache-Control"] == "no-cache"


def _first_load(page: str) -> list[Path]:
    """Files of the built console that its page names."""
    links = re.findall(r'(?:src|href)="/static/console/([^"]+)"', page)
    return [BUILT / link for link in links]


@pytest.mark.skipif(not BUILT.is_dir(), reason="the console is not built; make web does")
def test_first_load_is_small_and_all_our_own() -> None:
    page = (BUILT / "index.html").read_text()
    files = _first_load(page)
    assert {file.suffix for file in files} >= {".js", ".css"}
    assert not re.search(r'<script>|<style|\son\w+=|\sstyle=|(?:src|href)="(?!/static/console/)', page)
    total = sum(len(gzip.compress(file.read_bytes())) for file in (BUILT / "index.html", *files))
    assert total < FIRST_LOAD_LIMIT, f"a first visit loads {total} bytes, compressed"
