"""Copies of tables in the schema `penstock` of the source, and the join that finds the rows in which a table differs from its copy.

Values are compared by their images (`*<>`), since equal values may print differently: 1.0 and 1.00, 0 and -0, texts under a collation that
ignores case. The copy's mark has the number of its rows and the sum of their xmin: a later transaction that changes rows changes one of
them, even if there are as many rows as before, since transaction numbers grow.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby

import psycopg
from psycopg import pq, sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import TableSchema
from engine.platform.failpoints import Failpoint, hit
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS, copy_out
from engine.sources.postgres.splits import ReadRules, begin_read, select_rows
from engine.sources.postgres_queries.hashing import split_of
from engine.sources.query_diff.database import ComparedTable

SCHEMA = "penstock"
MAY_KEEP = """
SELECT to_regnamespace('penstock') IS NOT NULL AND NOT pg_is_in_recovery()
       AND has_schema_privilege('penstock', 'USAGE') AND has_schema_privilege('penstock', 'CREATE')
"""
"""Whether the user may create tables in the schema. The function is not called for a schema that is missing."""
_KEY = """
SELECT i.indexrelid::bigint, u.attnum::int, n.nspname, o.oprname
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indclass::oid[], i.indcollation::oid[]) WITH ORDINALITY AS u(attnum, class, coll, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.attnum AND a.attcollation = u.coll
JOIN pg_opclass c ON c.oid = u.class AND c.opcdefault
JOIN pg_amop p ON p.amopfamily = c.opcfamily AND p.amopstrategy = 3 AND p.amoplefttype = c.opcintype AND p.amoprighttype = c.opcintype
JOIN pg_operator o ON o.oid = p.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
WHERE i.indrelid = %s AND i.indisvalid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
  AND u.place <= i.indnkeyatts AND i.indnkeyatts = %s
ORDER BY 1, 2
"""
"""Key columns, and their operators of equality, of indexes that keep unique what the primary key of the copy does."""
_TYPES = """
WITH RECURSIVE held (type) AS (
    SELECT atttypid FROM pg_attribute WHERE attrelid = %s AND attnum = ANY (%s)
    UNION
    SELECT x.type FROM held JOIN pg_type t ON t.oid = held.type CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)) AS x(type)
    WHERE x.type <> 0)
SELECT coalesce(bool_or(t.typnamespace = 'pg_catalog'::regnamespace AND (t.typname LIKE 'reg%%' OR t.typname = 'aclitem')), false),
       coalesce(md5((SELECT string_agg(e.oid || ' ' || e.enumlabel, E'\\n' ORDER BY e.oid) FROM pg_enum e
                     WHERE e.enumtypid IN (SELECT type FROM held))), '')
FROM held JOIN pg_type t ON t.oid = held.type
"""
"""Whether values of a table's columns print the names of other things, which may be renamed; and a digest of the labels of its
enumerations, which may be renamed too."""
_COPY = """
SELECT c.relkind = 'r' AND NOT (c.relhastriggers OR c.relhasrules OR c.relrowsecurity OR c.relhassubclass OR c.relispartition),
       coalesce((SELECT i.indkey::int2[]::int[] FROM pg_index i
                 WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate), '{}'),
       (SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::bigint, a.atttypmod, a.attcollation::bigint) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
"""The copy, and what of it has to fit the table."""
_EXPECTED = """
SELECT json_agg(json_build_array(u.place, a.attname, a.atttypid::bigint, a.atttypmod, a.attcollation::bigint) ORDER BY u.place)
FROM unnest(%s::int2[]) WITH ORDINALITY AS u(attnum, place) JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = u.attnum
"""
"""The columns of a copy that fits."""
_HELD = "SELECT count(*), coalesce(sum(xmin::text::bigint), 0)::text, to_regclass(%s)::oid::bigint FROM ONLY {}"
_DROP = "DROP TABLE IF EXISTS {}"
_CREATE = (
    "CREATE UNLOGGED TABLE {copy} AS {rows}",
    "ALTER TABLE {copy} ADD PRIMARY KEY ({keys})",
)
_DIFFERENCE = """
WITH d AS MATERIALIZED (
    SELECT b.tableoid IS NULL AS gone, c.tableoid IS NULL AS is_new, {news}, {olds}
    FROM ({rows}) AS b FULL JOIN ONLY {copy} AS c ON {joined}
    WHERE b.tableoid IS NULL OR c.tableoid IS NULL OR ROW({base})::record OPERATOR(pg_catalog.*<>) ROW({copied})::record
), removed AS (
    DELETE FROM ONLY {copy} AS c USING d WHERE d.gone AND {same}
), written AS (
    INSERT INTO {copy} ({columns}) SELECT {b} FROM d WHERE NOT gone ON CONFLICT ({keys}) DO UPDATE SET {set}
)
"""
"""The restriction is within the rows of the table: a row that leaves it is gone, one that enters it is new. The casts compare rows as
wholes."""
_SENT = """SELECT CASE WHEN gone THEN 'D' WHEN is_new THEN 'I'
 WHEN ROW({bkeys})::record OPERATOR(pg_catalog.*<>) ROW({ckeys})::record THEN 'K' ELSE 'U' END, {b}, {c} FROM d"""
_COUNTED = "SELECT count(*) FROM d"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """`place`: among the table's columns, from 0; `schema`, `operator`: of its equality."""

    name: str
    place: int
    schema: str
    operator: str


def join_key(connection: PostgresConnection, schema: TableSchema) -> list[KeyColumn] | None:
    """The columns of the key; None if no index keeps unique what the primary key of a copy would."""
    columns, names = schema.key_columns, [column.name for column in schema.columns]
    rows = connection.execute(_KEY, [schema.relation, len(columns)]).fetchall()
    for _, group in groupby(rows, key=lambda row: row[0]):
        found = {number: (schema, operator) for _, number, schema, operator in group}
        if found.keys() == {int(column.attnum) for column in columns}:
            return [
                KeyColumn(column.on_source, names.index(column.name), *found[int(column.attnum)]) for column in columns
            ]
    return None


def copy_obstacle(connection: PostgresConnection, schema: TableSchema) -> str | None:
    """Why a copy of the table would not show all of its changes, as text; None if it does."""
    if join_key(connection, schema) is None:
        return "no index with the usual operators and the columns' collations keeps its key unique"
    if _types(connection, schema)[0]:
        return "values of it print the names of other things, which may be renamed"
    return None


def difference_sql(table: ComparedTable, copy: sql.Composable, key: Sequence[KeyColumn], *, sent: bool) -> sql.Composed:
    """A query that makes the copy like the table. `sent`: it returns what differed, as of `CopyJoin.differences`; else how many rows."""
    names = [column.on_source for column in table.schema.columns]
    olds = list(enumerate(names)) if sent else [(each.place, each.name) for each in key]
    listed = sql.SQL(", ").join([sql.SQL("tableoid"), *map(sql.Identifier, names)])
    parts = {
        "rows": select_rows(table.schema, table.schema.name, [], listed),
        "copy": copy,
        "columns": _each("{}", names),
        "set": _each("{0} = excluded.{0}", names),
        "keys": _each("{}", [each.name for each in key]),
        "base": _each("b.{}", names),
        "copied": _each("c.{}", names),
        "news": sql.SQL(", ").join(sql.SQL(f"b.{{}} AS b{i}").format(sql.Identifier(n)) for i, n in enumerate(names)),
        "olds": sql.SQL(", ").join(sql.SQL(f"c.{{}} AS c{i}").format(sql.Identifier(n)) for i, n in olds),
        "joined": _equal(key, "b.{name} {operator} c.{name}"),
        "same": _equal(key, "c.{name} {operator} d.c{place}"),
        "b": sql.SQL(", ".join(f"b{i}" for i in range(len(names)))),
        "c": sql.SQL(", ".join(f"c{i}" for i in range(len(names)))),
        "bkeys": sql.SQL(", ".join(f"b{each.place}" for each in key)),
        "ckeys": sql.SQL(", ".join(f"c{each.place}" for each in key)),
    }
    query = _DIFFERENCE + (_SENT if sent else _COUNTED)
    return sql.SQL(query).format(**parts)


def _each(form: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(form).format(sql.Identifier(name)) for name in names)


def _equal(key: Sequence[KeyColumn], form: str) -> sql.Composed:
    return sql.SQL(" AND ").join(
        sql.SQL(form).format(
            name=sql.Identifier(each.name),
            operator=sql.SQL("OPERATOR({}.{})").format(sql.Identifier(each.schema), sql.SQL(each.operator)),
            place=sql.SQL(str(each.place)),
        )
        for each in key
    )


class PostgresCopies:
    """`SourceCopies` in the schema `penstock`."""

    def __init__(self, connector: Connector, rules: ReadRules) -> None:
        self._connector = connector
        self._rules = replace(rules, read_only=False)

    def can_keep(self, table: ComparedTable) -> bool:
        if table.keyless:
            return False
        with self._connector.session(str(table.schema.name)) as connection:
            return (
                bool(connection.execute(MAY_KEEP).fetchall()[0][0]) and copy_obstacle(connection, table.schema) is None
            )

    @contextmanager
    def join(self, table: ComparedTable, snapshot: str, copy: str) -> Iterator[PostgresCopyJoin]:
        subject = f"relation {table.schema.relation}"
        with self._connector.session(subject) as connection:
            try:
                begin_read(connection, split_of(table, sql.SQL("")), snapshot, subject, self._rules)
                yield PostgresCopyJoin(self._connector, connection, table, copy)
            except psycopg.Error as error:
                raise SOURCE.fault(error, subject, COPY_KINDS) from error
            finally:
                if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                    connection.close()

    def drop(self, copies: Collection[str]) -> dict[str, str]:
        left = {name: sql.SQL(_DROP).format(_named(name)).as_string() for name in copies}
        try:
            with self._connector.session(SCHEMA) as connection:
                for name, statement in list(left.items()):
                    try:
                        connection.execute(statement.encode())
                    except psycopg.Error:
                        continue
                    del left[name]
        except EngineFault:
            # What could not be dropped is dropped later, or by an administrator.
            return left
        return left


class PostgresCopyJoin:
    """`CopyJoin` in a transaction that has begun under the snapshot."""

    def __init__(self, connector: Connector, connection: PostgresConnection, table: ComparedTable, copy: str) -> None:
        self._connector = connector
        self._connection = connection
        self._table = table
        self._copy = _named(copy)
        self._text = self._copy.as_string(connection)
        key = join_key(connection, table.schema)
        if key is None:
            raise EngineFault(
                FaultKind.TABLE_STRUCTURE_CHANGED, str(table.schema.name), "the index over its key changed"
            )
        self._key = key
        self._changed = False
        self.mark = self._marked() if self._fits() else None

    def differences(self) -> Iterator[bytes]:
        query = difference_sql(self._table, self._copy, self._key, sent=True).as_string(self._connection)
        for piece in copy_out(self._connector, self._connection, query, f"relation {self._table.schema.relation}"):
            self._changed = True
            yield piece

    def refresh(self) -> None:
        if self.mark is None:
            self._create()
        else:
            self._connection.execute(difference_sql(self._table, self._copy, self._key, sent=False))
        self._connection.execute(sql.SQL("ANALYZE {}").format(self._copy))
        self._changed = True

    def commit(self) -> str:
        mark = self._marked() if self._changed or self.mark is None else self.mark
        hit(Failpoint.JOIN_WRITTEN)
        self._connection.execute("COMMIT")
        hit(Failpoint.JOIN_COMMITTED)
        return mark

    def _fits(self) -> bool:
        """Whether the copy is there as it was created; that cannot change afterwards."""
        if self._connection.execute("SELECT to_regclass(%s) IS NULL", [self._text]).fetchall()[0][0]:
            return False
        # Lets VACUUM run. Rows that others write meanwhile are not seen by this transaction, and change the mark for the next one.
        self._connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ROW EXCLUSIVE MODE").format(self._copy))
        numbers, relation = [int(column.attnum) for column in self._table.schema.columns], self._table.schema.relation
        # Not in this transaction, whose snapshot shows the copy as it was before the lock.
        with self._connector.session(f"relation {relation}") as other:
            found = other.execute(_COPY, [self._text]).fetchall()
            expected = other.execute(_EXPECTED, [numbers, relation]).fetchall()[0][0]
        places = [each.place + 1 for each in self._key]
        return [(plain, list(keys), columns) for plain, keys, columns in found] == [(True, places, expected)]

    def _marked(self) -> str:
        found = self._connection.execute(sql.SQL(_HELD).format(self._copy), [self._text]).fetchall()[0]
        _, labels = _types(self._connection, self._table.schema)
        return json.dumps([*found, labels, self._connection.info.server_version // 10_000])

    def _create(self) -> None:
        """Not logged: after a crash of the server it is empty, which its mark shows."""
        parts = {
            "copy": self._copy,
            "keys": _each("{}", [each.name for each in self._key]),
            "rows": select_rows(self._table.schema, self._table.schema.name, []),
        }
        self._connection.execute(sql.SQL(_DROP).format(self._copy))
        for statement in _CREATE:
            self._connection.execute(sql.SQL(statement).format(**parts))


def _types(connection: PostgresConnection, schema: TableSchema) -> tuple[bool, str]:
    numbers = [int(column.attnum) for column in schema.columns]
    unsafe, labels = connection.execute(_TYPES, [schema.relation, numbers]).fetchall()[0]
    return bool(unsafe), str(labels)


def _named(copy: str) -> sql.Identifier:
    return sql.Identifier(SCHEMA, copy)
