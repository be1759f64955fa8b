"""The examples of the page on the record form are the bytes that are written, and are read as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from engine.model.control import ControlKind
from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn
from engine.model.schema import ReplicaIdentity
from engine.records.encode import (
    DELETE,
    INSERT,
    UPDATE,
    Texts,
    encode_rows,
    truncate_record,
)
from engine.records.messages import parse_truncate
from engine.records.relation import Announced, AnnouncedColumn, parse_relation, relation_record
from engine.records.scan import find_controls
from tests.fixtures.records import begin_record, commit_record
from tests.unit.net import pgoutput_encoder as wire

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "record-form.md"
TABLE = RelationId(77)
COMMITTED_US = 946_684_807_000_000
ANNOUNCED = Announced(
    TABLE,
    TableName("public", "t"),
    ReplicaIdentity.DEFAULT,
    (AnnouncedColumn("id", True, 20, -1), AnnouncedColumn("note", False, 25, -1)),
)


def examples() -> dict[str, bytes]:
    (block,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {name: bytes.fromhex(digits) for name, digits in (line.split(maxsplit=1) for line in block.splitlines())}


def row(operation: int, new: list[str | None], old: list[str | None] | None = None) -> bytes:
    olds = None if old is None else Texts.from_values([old], 2)
    return bytes(encode_rows(TABLE, np.array([operation], np.uint8), Texts.from_values([new], 2), olds)[0])


def test_the_examples_are_what_is_written() -> None:
    assert examples() == {
        "begin": begin_record(Lsn(900), 5, COMMITTED_US),
        "relation": relation_record(ANNOUNCED),
        "insert": row(INSERT, ["1", None]),
        "update": row(UPDATE, ["1", "é"]),
        "rekey": wire.update(TABLE, ["2", wire.UNCHANGED], ["1", None], "K"),
        "delete": row(DELETE, [None, None], ["2", None]),
        "truncate": truncate_record([TABLE]),
        "commit": commit_record(Lsn(900), COMMITTED_US),
    }


def test_the_examples_are_read() -> None:
    found = examples()
    assert parse_relation(found["relation"]) == ANNOUNCED
    assert parse_truncate(found["truncate"], streamed=False) == (0, (TABLE,))
    controls, open_transaction = find_controls(*wire.pack(list(found.values())), 0)
    kinds = [ControlKind.BEGIN, ControlKind.RELATION, ControlKind.TRUNCATE, ControlKind.COMMIT]
    assert (controls["kind"].tolist(), open_transaction) == (kinds, 0)
    assert (controls["xid"][0], controls["end_lsn"][-1], controls["time_us"][-1]) == (5, 900, COMMITTED_US)
