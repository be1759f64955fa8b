"""Values that are read from JSON are those that PostgreSQL itself prints, for each type for which that is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from engine.records.landing import CopyLines
from engine.sources.postgres_triggers.json_rows import FIELDS, JsonForm, printed_rows
from engine.sources.postgres_triggers.objects import PLAIN_TYPES
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

VALUES = {
    "bool": ("true", "false"),
    "int2": ("-32768", "0"),
    "int4": ("2147483647", "-1"),
    "int8": ("-9223372036854775808", "7"),
    "numeric": ("1.500", "-0.000001", "NaN", "Infinity", "1e40"),
    "text": ("", 'a"b\\c', "line\nbreak\ttab\r", "é\U0001f600", "\x01\x1f\x7f", "null", "{}", "\\N"),
    "varchar": ("x,y", "'"),
    "bpchar": ("a  ",),
    "char": ("c",),
    "name": ("a name",),
    "oid": ("4294967295",),
    "date": ("2026-01-31", "0044-03-15 BC", "infinity", "12026-01-01"),
    "time": ("23:59:59.999999", "24:00:00"),
    "timetz": ("12:00:00.5+02:30", "12:00:00-15:59:59"),
    "timestamp": ("2026-01-31 12:00:00.123456", "0044-03-15 12:00:00 BC", "-infinity", "294276-01-01 00:00:00"),
    "timestamptz": (
        *("2026-01-31 12:00:00.5+00", "2026-07-31 23:59:59.999999+00", "0044-03-15 12:00:00+00 BC", "infinity"),
        *("1800-01-01 00:00:00+00", "10000-01-01 01:00:00+00", "9999-12-31 23:00:00+00", "0001-01-01 00:30:00+00"),
    ),
    "uuid": ("00000000-0000-4000-8000-0000000000ff",),
    "bit": ("1",),
    "varbit": ("", "10110"),
    "inet": ("192.168.0.1/24", "::1"),
    "cidr": ("10.0.0.0/8",),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
}
ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "Pacific/Apia")
REFUSED = {"0044-03-15 12:00:00 BC", "0044-03-15 12:00:00+00 BC", "0001-01-01 00:30:00+00"}
"""Read by PostgreSQL, since their texts cannot be computed in place, or not in each zone."""


@pytest.mark.parametrize("zone", ZONES)
def test_each_plain_type(database: Database, zone: str) -> None:
    assert set(VALUES) == PLAIN_TYPES
    for kind, values in VALUES.items():
        given = (*values, None)
        printed, wanted = _printed(database, kind, given, zone)
        for place, value in enumerate(given):
            lines = CopyLines.of(b"1\t2\t3\tI\t\\N\t" + printed[place] + b"\n", FIELDS)
            found = printed_rows(lines)[3].changes(JsonForm.of(["id", "v"], ["v"], {"v": kind}))
            if found is None:
                assert value in REFUSED, (kind, value)
                continue
            starts, sizes = found.news
            text = _text(found.data, starts[0, 0], sizes[0, 0])
            assert text == _text(wanted.data, wanted.starts[place, 0], wanted.sizes[place, 0]), (kind, value)


def _printed(database: Database, kind: str, values: tuple[str | None, ...], zone: str) -> tuple[list[bytes], CopyLines]:
    """The rows as JSON, printed by a writer's session and sent as COPY text, and the values as a reader's session prints them."""
    table = f"t_{kind}_{zone.rpartition('/')[2].lower()}"
    with database.connect() as connection:
        connection.execute(f"SET timezone = '{zone}'".encode())
        connection.execute("SET datestyle = 'SQL, DMY'")
        connection.execute(f'CREATE TABLE {table} (id int, v "{kind}")'.encode())
        for place, value in enumerate(values):
            connection.execute(f'INSERT INTO {table} VALUES (%s, %s::"{kind}")'.encode(), [place, value])
        connection.execute(f"CREATE TABLE {table}_json AS SELECT id, row_to_json(t) AS row FROM {table} t".encode())
        connection.execute("SET timezone = 'UTC'")
        connection.execute("SET datestyle = 'ISO, MDY'")
        rows, texts = (
            b"".join(bytes(piece) for piece in _copied(connection, sql))
            for sql in (f"SELECT row FROM {table}_json ORDER BY id", f"SELECT v FROM {table} ORDER BY id")
        )
    return rows.splitlines(), CopyLines.of(texts, 1)


def _copied(connection: psycopg.Connection[Any], sql: str) -> Iterator[Any]:
    with connection.cursor().copy(f"COPY ({sql}) TO STDOUT".encode()) as copy:
        yield from copy


def _text(data: Any, start: int, size: int) -> bytes | None:
    return None if size < 0 else data[start : start + size].tobytes()
