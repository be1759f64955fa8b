"""The most seconds of a statement: declared for databases that have such a limit, and known to the reader."""

from __future__ import annotations

from typing import Any

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.mariadb_queries.declaration import MariaDbQueriesCapture
from engine.sources.postgres_queries.declaration import PostgresQueriesCapture
from engine.sources.query_diff.given import given_by


@pytest.mark.parametrize("capture", [PostgresQueriesCapture, MariaDbQueriesCapture])
@pytest.mark.parametrize(("declared", "seconds"), [({"statement_seconds": 30}, 30), ({}, None)])
def test_a_declared_limit_is_that_of_cycles(capture: Any, declared: dict[str, int], seconds: int | None) -> None:
    settings = capture.model_validate(declared).assigned()["capture"]["settings"]
    spec = ConnectionSpec("shop", "any", {}, {}, CaptureSpec("query_diff", settings))
    assert given_by(spec).manners.statement_s == seconds
