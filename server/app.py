"""Builds the web application from settings. This is the only place that connects its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache

from fastapi import APIRouter, FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from server import error_handlers, openapi, pages, retention
from server.body_limit import BodyLimitMiddleware
from server.clock import Clock, SystemClock
from server.db import migrate
from server.db.database import Database
from server.demo.sample import Sample
from server.events.stream import Watchers
from server.gateway.interface import NoEngine
from server.logs import configure_logs
from server.routers import API_PREFIX, API_ROUTERS, PLAIN_ROUTERS, SERVICES
from server.security import bootstrap
from server.security.principals import Principals
from server.security.secret_box import load_box
from server.settings import Settings, load_settings
from server.tracing import TraceMiddleware

VERSION = "0.1.0"


def create_app(settings: Settings | None = None, clock: Clock | None = None) -> FastAPI:
    """The application. Nothing is opened before its lifespan begins.

    Raises:
        SettingsError: `settings` is None, and a loaded one is invalid.
    """
    settings = settings or load_settings()
    app = FastAPI(
        title="Penstock",
        version=VERSION,
        description=openapi.DESCRIPTION,
        openapi_url=f"{API_PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        routes=[*_routes()],
    )
    app.state.settings = settings
    app.state.clock = clock or SystemClock()
    app.state.engine_gateway = NoEngine()
    app.state.sample = Sample(settings.home)
    pages.install(app)
    error_handlers.install(app)
    openapi.install(app)
    app.add_middleware(BodyLimitMiddleware, limit=settings.max_body_bytes, exempt=f"{API_PREFIX}/engines/")
    app.add_middleware(TraceMiddleware)
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Every router's routes. Each is analysed at the first request, for longer than all else takes; applications share the result."""
    every = APIRouter()
    for router in API_ROUTERS:
        every.include_router(router, prefix=API_PREFIX)
    for router in PLAIN_ROUTERS:
        every.include_router(router)
    return tuple(every.routes)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    configure_logs(settings.log_level)
    await run_in_threadpool(_open, app, settings)
    database: Database = app.state.database
    async with AsyncExitStack() as stack:
        stack.callback(database.close)
        app.state.principals = stack.enter_context(Principals.of(database))
        app.state.watchers = stack.enter_context(Watchers.listening_to(database.signals))
        for service in SERVICES:
            await stack.enter_async_context(service(app))
        await stack.enter_async_context(retention.running(app))
        yield


def _open(app: FastAPI, settings: Settings) -> None:
    """Open the control database and what depends on it; sets `app.state.database` and `app.state.secret_box`."""
    settings.make_home()
    box = load_box(settings)
    if settings.control_database.startswith("sqlite"):
        migrate.upgrade(settings.control_database)
    database = Database(settings.control_database, app.state.clock)
    migrate.require_current(database)
    bootstrap.ensure_tokens(database, settings)
    bootstrap.renew_seals(database, box)
    app.state.database = database
    app.state.secret_box = box
