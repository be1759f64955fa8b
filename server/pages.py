"""The web console: its built files, or a status page if it was not built, with a content security policy."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

FOLDER = Path(__file__).parent / "static"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_HASHED = "console/assets/"
_FOR_EVER = "public, max-age=31536000, immutable"
_NEVER_PAGES = {"api", "static"}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        if Path(path).as_posix().startswith(_HASHED):
            # The file name contains a hash of the content, so the content under a name never changes.
            response.headers["Cache-Control"] = _FOR_EVER
        return response


class _ConsolePages(Route):
    """Paths of the console's pages: navigation requests of a browser that no other route of the server serves."""

    def __init__(self, index: Path) -> None:
        super().__init__("/{page:path}", self._answer, include_in_schema=False)
        self._index = index

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not self._goes_to_a_page(scope):
            return Match.NONE, {}
        return super().matches(scope)

    def _goes_to_a_page(self, scope: Scope) -> bool:
        first = scope["path"].lstrip("/").partition("/")[0]
        # Names of subscriptions may contain dots; files that browsers and robots request are at the top level.
        if first in _NEVER_PAGES or "." in first or "text/html" not in Headers(scope=scope).get("accept", ""):
            return False
        return self._index.is_file()

    async def _answer(self, _request: Request) -> Response:
        return FileResponse(self._index, headers=_HEADERS)


def install(app: FastAPI, folder: Path = FOLDER) -> None:
    """Serve the console at `/` and at the paths of its pages, and the files of `folder` below `/static`.

    Call it after all other routes are registered: they take precedence.
    """
    console = folder / "console" / "index.html"

    async def index() -> FileResponse:
        return FileResponse(console if console.is_file() else folder / "index.html", headers=_HEADERS)

    app.mount("/static", GZipMiddleware(_Files(directory=folder)), name="static")
    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.router.routes.append(_ConsolePages(console))
