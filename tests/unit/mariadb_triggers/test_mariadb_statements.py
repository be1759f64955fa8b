"""MariaDB's types and trigger statements, and rows of its protocol as lines: without a server."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.mariadb.catalog import Index, Structure
from engine.sources.mariadb.lines import read_lines
from engine.sources.mariadb.preflight import version_number
from engine.sources.mariadb.types import ColumnFacts, numeric_modifier, printed
from engine.sources.mariadb_triggers.catalog import TriggeredTable
from engine.sources.mariadb_triggers.objects import own_triggers


def column(name: str, kind: str, full: str = "", precision: int | None = None, scale: int | None = None) -> ColumnFacts:
    return ColumnFacts(name, kind, full or kind, precision, scale, 6 if "6" in full else None, True)


@pytest.mark.parametrize(
    ("facts", "name", "modifier"),
    [
        (column("a", "tinyint", "tinyint(3) unsigned"), "int2", -1),
        (column("a", "int", "int(10) unsigned"), "int8", -1),
        (column("a", "bigint", "bigint(20) unsigned"), "numeric", numeric_modifier(20, 0)),
        (column("a", "decimal", "decimal(38,9)", 38, 9), "numeric", numeric_modifier(38, 9)),
        (column("a", "decimal", "decimal(39,9)", 39, 9), "text", -1),
        (column("a", "timestamp", "timestamp(6)"), "timestamptz", -1),
        (column("a", "set", "set('a','b')"), "text", -1),
        (column("a", "longblob"), "bytea", -1),
    ],
)
def test_a_type_is_printed_as_its_canonical_one(facts: ColumnFacts, name: str, modifier: int) -> None:
    how = printed(facts)
    assert how is not None
    assert (how.name, how.modifier) == (name, modifier)
    assert how.oid > 0


def test_a_type_that_is_not_known_is_not_printed() -> None:
    assert printed(column("a", "xmltype")) is None


def orders() -> TriggeredTable:
    indexes = [Index("PRIMARY", True, ("id",), False, True), Index("u", True, ("na`me",), True, True)]
    columns = [column("id", "int"), column("na`me", "varchar"), column("x", "xmltype")]
    table = TriggeredTable(
        TableName("shop", "orders"), "InnoDB", "BASE TABLE", False, "2026-01-01 00:00:00", 1, 1, relation=7
    )
    table.columns, table.indexes = columns, indexes
    return table


def test_triggers_record_the_columns_and_ask_whether_an_update_took_place() -> None:
    insert, update, delete = (trigger.created() for trigger in own_triggers(orders(), 12))
    assert insert.startswith(
        "CREATE TRIGGER `shop`.`penstock_insert_12` AFTER INSERT ON `shop`.`orders` FOR EACH ROW INSERT INTO"
    )
    assert "(source, op, new) VALUES (12, 'I'," in insert
    assert "(source, op, old) VALUES (12, 'D'," in delete
    assert "IF (NEW.`id` <=> OLD.`id` AND NEW.`na``me` <=> OLD.`na``me`) OR" in update
    assert (
        "NOT EXISTS (SELECT 1 FROM `shop`.`orders` t FORCE INDEX (PRIMARY) WHERE t.`id` <=> OLD.`id` LOCK IN SHARE MODE)"
        in update
    )
    assert "`x`" not in insert + update + delete


def test_a_structure_is_read_back_and_another_one_shares_no_number_with_it() -> None:
    table = orders()
    first = table.structure()
    assert Structure.from_text(first.to_text()) == first
    assert (first.key, first.names) == (("id",), ("id", "na`me"))
    table.created = "2026-01-01 00:00:01"
    assert not {c[3] for c in first.columns} & {c[3] for c in table.structure().columns}


def test_a_version_is_a_number() -> None:
    assert version_number("10.11.19-MariaDB-0+deb12u1") == 101119
    assert version_number("11.4-MariaDB") == 110400


class Server:
    """Answers a query with packets, a few bytes at a time."""

    def __init__(self, packets: list[bytes], step: int) -> None:
        self._bytes = io.BytesIO(b"".join(len(p).to_bytes(3, "little") + b"\0" + p for p in packets))
        self._step = step
        self._rfile = self

    def read1(self, size: int) -> bytes:
        return self._bytes.read(min(size, self._step))

    def _execute_command(self, command: int, query: bytes) -> None:
        """Taken."""

    def _read_packet(self) -> Any:
        return SimpleNamespace(read_length_encoded_integer=lambda: 1)


def value(text: bytes) -> bytes:
    for least, mark, bytes_ in ((1 << 24, b"\xfe", 8), (1 << 16, b"\xfd", 3), (251, b"\xfc", 2)):
        if len(text) >= least:
            return mark + len(text).to_bytes(bytes_, "little") + text
    return bytes([len(text)]) + text


END = b"\xfe\0\0\0\0"


@given(
    st.lists(st.integers(0, 300).map(lambda n: b"x" * n) | st.just(b"y" * 70_000)),
    st.sampled_from([1, 7, 4096, 1 << 20]),
)
def test_rows_are_lines_however_they_arrive(texts: list[bytes], step: int) -> None:
    texts = [text[:300] for text in texts] if step < 4096 else texts
    found = b"".join(read_lines(Server([*map(value, texts), END], step), "SELECT 1"))
    assert found == b"".join(text + b"\n" for text in texts)


def test_a_row_of_several_packets_is_one_line() -> None:
    text = b"z" * (0xFFFFFF + 10)
    whole = value(text)
    found = b"".join(
        read_lines(Server([b"\x01a", whole[:0xFFFFFF], whole[0xFFFFFF:], b"\x01b", END], 1 << 20), "SELECT 1")
    )
    assert found == b"a\n" + text + b"\nb\n"


def test_a_row_that_the_server_cannot_print_is_an_error_at_the_end() -> None:
    with pytest.raises(EngineFault) as caught:
        list(read_lines(Server([b"\x01a", b"\xfb", b"\x01b", END], 5), "SELECT 1"))
    assert caught.value.kind is FaultKind.VALUE_OUT_OF_DOMAIN
