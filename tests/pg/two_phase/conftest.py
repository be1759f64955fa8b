"""A node of PostgreSQL 16 and of 18."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.pg.two_phase.node import Node, node_on


@pytest.fixture
def node(pg: EmbeddedPostgres, database_on: Callable[..., Database]) -> Iterator[Node]:
    with node_on(database_on(pg, logical_decoding_work_mem="'64kB'")) as node:
        yield node


@pytest.fixture
def version(pg: EmbeddedPostgres) -> int:
    """The node's major version."""
    return int(pg.execute("SHOW server_version_num")[0][0]) // 10000
