"""The text form of net-change cases: a table, its changes, and what is left of them.

table id* name big            a table; `*` marks key columns, `name:int4` a type; the first word may be
                              `table bag` or `table append`
version id* name extra:text=x the next version, sent as a relation record; columns match by name; `=x` is the fill
insert 1 ann big              `-` is NULL, `~` an unchanged value that the log leaves out
update 1 bob ~                without old image; `update (1) 2 bob ~` with the old key, `update [1 a b] 2 b ~` with
                              the full old row
delete (1)                    `delete [1 a b]` with the full old row
truncate
buckets 2                     net in so many buckets; the outcome is all buckets' together, sorted
"""

from __future__ import annotations

import re
from dataclasses import replace

from engine.model.batch import TableChanges
from engine.model.schema import Column, KeyMode, ReplicaIdentity, TableSchema
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, part, rows, table, task

OID = 100


def run_case(text: str) -> list[str]:
    """The net result of a case, one line per fact."""
    records: list[bytes] = []
    versions: list[TableSchema] = []
    buckets = 1
    for line in text.splitlines():
        verb, _, rest = line.strip().partition(" ")
        if not verb or verb.startswith("#"):
            continue
        if verb == "table":
            versions.append(parse_table(rest, []))
        elif verb == "version":
            versions.append(parse_table(rest, versions))
            records.append(pgoutput.relation(OID, [c.name for c in versions[-1].columns]))
        elif verb == "buckets":
            buckets = int(rest)
        else:
            records.append(parse_record(verb, rest, versions[-1]))
    shares = [
        changes
        for b in range(buckets)
        for changes in task(records, [part(*versions)], bucket=b, buckets=buckets).tables
    ]
    return show_changes(shares)


def parse_table(text: str, before: list[TableSchema], oid: int = OID) -> TableSchema:
    """A table's structure, or its next version."""
    words = text.split()
    mode = KeyMode(words.pop(0)) if words[0] in ("bag", "append") else KeyMode.KEYED
    known = {c.name: c.attnum for c in before[-1].columns} if before else {}
    highest = max((c.attnum for version in before for c in version.columns), default=0)
    columns: list[Column] = []
    key = []
    for word in words:
        match = re.fullmatch(r"(\w+)(\*?)(?::(\w+))?(?:=(\S+))?", word)
        assert match, word
        name, star, kind, fill = match.groups()
        if name not in known:
            highest += 1
        columns.append(replace(column(name, kind or "text", known.get(name, highest)), fill=fill))
        if star:
            key.append(name)
    return table(columns, key, before[-1].mode if before else mode, ReplicaIdentity.DEFAULT, oid)


def parse_record(verb: str, rest: str, schema: TableSchema, xid: int = 0) -> bytes:
    """The record of a change; `xid`: which it carries inside a stream."""
    oid = schema.relation
    if verb == "truncate":
        return pgoutput.truncate([oid], xid)
    match = re.fullmatch(r"(?:\((.*?)\)|\[(.*?)\])?\s*(.*)", rest)
    assert match, rest
    key, full, new = match.groups()
    old, kind = None, "O"
    if key is not None:
        given = dict(zip(schema.key, _values(key), strict=True))
        old, kind = [given.get(c.name) for c in schema.columns], "K"
    elif full is not None:
        old = _values(full)
    if verb == "delete":
        assert old is not None
        return pgoutput.delete(oid, old, kind, xid)
    if verb == "insert":
        return pgoutput.insert(oid, _values(new), xid)
    assert verb == "update", verb
    return pgoutput.update(oid, _values(new), old, kind, xid)


def _values(text: str) -> list[pgoutput.Value]:
    special: dict[str, pgoutput.Value] = {"-": None, "~": pgoutput.UNCHANGED}
    return [special.get(word, word) for word in text.split()]


def show_changes(shares: list[TableChanges]) -> list[str]:
    """What all buckets together say of one table, one line per fact."""
    fault = next((s.fault for s in shares if s.fault is not None), None)
    if fault is not None:
        return [f"fault {fault.code}: {fault.detail}"]
    lines = ["truncated"] if any(s.truncated for s in shares) else []
    for share in shares:
        deleted = [_words(row) for row in rows(share.deletes)]
        lines += [f"delete {words}" for words in deleted]
        lines += [f"insert {_words(row)}" for row in rows(share.inserts)]
        lines += _partials(share)
    totals: dict[str, int] = {}
    for share in shares:
        for name, count in share.counts.items():
            totals[name] = totals.get(name, 0) + count
    order = {"truncated": 0, "delete": 1, "insert": 2, "partial": 3}
    lines.sort(key=lambda line: (order[line.split()[0]], line))
    seen = " ".join(f"{name}={count}" for name, count in sorted(totals.items()))
    return [*lines, f"seen {seen}, net rows {sum(s.net_rows for s in shares)}"]


def _partials(share: TableChanges) -> list[str]:
    if share.partials is None:
        return []
    lines = []
    for row in share.partials.to_pylist():
        key = [row[name] for name in row if name.startswith("k")]
        names = [name for name in row if name.startswith("c")]
        values = ["~" if row.get(f"u{name[1:]}") else _word(row[name]) for name in names]
        lines.append(f"partial ({_words(key)}) {' '.join(values)}")
    return lines


def _words(row: object) -> str:
    assert isinstance(row, list | tuple)
    return " ".join(map(_word, row))


def _word(value: object) -> str:
    return "-" if value is None else str(value)
