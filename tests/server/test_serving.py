"""A client's connection is not closed by the server while the client still means to use it."""

from __future__ import annotations

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from server import serving


def test_idle_connections_outlive_what_clients_and_proxies_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[uvicorn.Config] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: begun.append(server.config))
    serving.run(FastAPI(), "127.0.0.1", 0)
    kept_by_clients = httpx.Limits().keepalive_expiry
    assert kept_by_clients is not None
    assert begun[0].timeout_keep_alive > max(kept_by_clients, 60)
