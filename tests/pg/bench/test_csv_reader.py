"""The reader that the benchmark compares with: whatever a text contains, its copy equals the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench import csv_recorder
from bench.csv_reader import CsvReader
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

TABLES = """
CREATE TABLE notes (id int PRIMARY KEY, note text, level numeric); CREATE TABLE log (at timestamptz, what text);
INSERT INTO notes VALUES (1, 'one', 1.50), (2, NULL, NULL), (3, '', 0);
"""
CHANGES = r"""
INSERT INTO notes VALUES (4, E'a "quote", a \\ and\na line', -1), (5, '\"', 5), (6, '', NULL), (7, 'é', 1e20);
UPDATE notes SET note = 'x,"y"' WHERE id < 3; UPDATE notes SET id = id + 100 WHERE id IN (3, 4);
DELETE FROM notes WHERE id = 2; INSERT INTO log VALUES (now(), 'one'), (now(), NULL);
"""


def test_what_it_applies_is_what_happened(database_on: Callable[..., Database], pg18: Any) -> None:
    source, target = database_on(pg18), database_on(pg18)
    for each in (source, target):
        each.execute(TABLES)
    with source.connect() as from_, target.connect() as to:
        csv_recorder.install(from_)
        reader = CsvReader(from_, to)
        source.execute(CHANGES)
        with source.connect() as other, other.transaction(force_rollback=True):
            other.execute("DELETE FROM notes")
        assert set(reader.differing()) == {"log", "notes"}
        assert reader.drain()[0] == 11
        assert reader.differing() == []
        assert reader.drain()[0] == 0
