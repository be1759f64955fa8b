"""The process that runs readers' statements: one at a time, in an empty in-memory DuckDB.

Tables are views there, whose rows come from the engine as they are scanned. All computation of a statement takes place in this process:
its memory is limited, and the engine kills it at the statement's time limit. It ends with the engine.
"""

from __future__ import annotations

import fcntl
import json
import os
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset

from engine.duckdb.value_text import literal
from engine.model.identity import TableName
from engine.model.target import QueryRefused, SqlClient
from engine.platform.pipe_file import PipeFile, PipeSink
from engine.postgres.array_literals import array_elements
from engine.postgres.bytea_literals import bytea_value
from engine.queries.channel import MAX_SQL_CHARACTERS, EngineChannel, Run, match_parameters, serve
from engine.queries.rows import grown, pieces, target_field
from engine.targets.duckdb.errors import is_out_of_memory
from engine.targets.duckdb.identifiers import folded, qualified
from engine.targets.duckdb.pg_catalog.detection import is_catalog_query
from engine.targets.duckdb.plain_read import PlainRead, plain_read
from engine.targets.duckdb.pushed import condition_of, scan_column
from engine.targets.duckdb.query_guard import Named, array_parameters, bytea_parameters, named, refusal
from engine.targets.identifiers import quoted

Bound: TypeAlias = str | bytes | list[str | bytes | None] | None
"""What DuckDB gets for a parameter."""
MAX_NESTING = 200
"""Most open brackets of a statement: people write far fewer, and DuckDB's parser recurses for each (see `bounded`). Not measured."""
SEARCH_PATH = "main,public"
"""Schemas of unqualified names; `public` for users of PostgreSQL."""
SCAN = "__penstock_scan_"
NOTHING = "nothing"
"""A column of every scan without a value of the table: DuckDB requests it if it only counts rows."""
_ROWS_AT_ONCE = 2048
"""Rows of an answer's batch: DuckDB's vector size, so that the first rows of a slow statement are sent early."""
_DUCKDB_SHARE = 0.6
"""Of the process's memory; Arrow, and what functions make of one vector, have the rest."""
_CATALOG_FUNCTIONS = ("tables", "columns", "views")
_DUCKDBS_OWN = frozenset({"system", "temp"})
"""Names of databases that every instance has."""
_SCAN_OPERATOR = "PYTHON_ARROW_SCAN"
_PIPE_BYTES = 1 << 20
"""Capacity of an answer's pipe in bytes: the most that Linux grants without privileges by default (`fs.pipe-max-size`)."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of a query process. `memory`: bytes beyond its memory at the start; `spill`: in DuckDB's notation."""

    catalog: str
    """Name of the target's file in statements."""
    memory: int
    threads: int
    spill: str
    folder: str
    """Folder for spilled rows."""


def main(control: Connection, limits: ProcessLimits) -> None:
    """Run statements until the engine is gone, or kills this process."""
    serve(control, limits.memory, lambda: _prepared(limits))


@contextmanager
def _prepared(limits: ProcessLimits) -> Iterator[Run]:
    """What runs a statement in an instance of its own."""
    with closing(_instance(limits)) as instance:
        yield lambda engine, request: _ended(engine, instance, request)


def _instance(limits: ProcessLimits) -> Any:
    """An empty DuckDB without access to the outside, with locked configuration."""
    configuration = {
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "memory_limit": f"{int(limits.memory * _DUCKDB_SHARE)}B",
        "threads": str(limits.threads),
        "temp_directory": limits.folder,
    }
    connection = duckdb.connect(":memory:", config=configuration)
    if limits.catalog != "memory":
        connection.execute(f"ATTACH ':memory:' AS {quoted(limits.catalog)}")
        connection.execute(f"USE {quoted(limits.catalog)}")
        connection.execute("DETACH memory")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET GLOBAL max_temp_directory_size = " + literal(limits.spill))
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL allowed_configs = ['arrow_lossless_conversion']")
    connection.execute("SET GLOBAL lock_configuration = true")
    return connection


def _ended(engine: EngineChannel, connection: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a statement; returns how it ended."""
    try:
        _run(engine, connection, request)
    except QueryRefused as refused:
        return {"kind": "end", "refused": [refused.code, refused.detail]}
    except (MemoryError, duckdb.Error, OSError, pa.ArrowException) as error:
        if isinstance(error, MemoryError | pa.ArrowMemoryError) or is_out_of_memory(error):
            return {"kind": "end", "refused": ["query_too_large", "the query needs more memory than a query may use"]}
        return {"kind": "end", "refused": ["query_invalid", str(error)]}
    return {"kind": "end", "refused": None}


def _run(engine: EngineChannel, connection: Any, request: Mapping[str, Any]) -> None:
    client = request["client"]
    if client is not None and is_catalog_query(request["sql"]):
        from engine.targets.duckdb.catalog_query import catalog_rows  # noqa: PLC0415 - preloaded; the engine needs no sqlglot

        bounded(request["sql"])
        rows = catalog_rows(engine, request, SqlClient(**client))
        send_rows(engine, rows.schema, iter(rows.to_batches()))
        return
    if client is not None:
        _name_database(connection, client["database"])
    read = _single_read(connection, request["sql"])
    values = read.values(request["parameters"])
    places, expressions = sorted(read.names.places), sorted(read.names.expressions)
    answer = engine.asked(
        {"kind": "named", "places": places, "expressions": expressions, "catalog": read.names.catalog}
    )
    known: list[Any] = []
    scans: list[_Table] = []
    while "tables" in answer:
        scans = _show(engine, connection, known, answer["tables"])
        known = answer["tables"]
        plan = _plan(connection, read.statement, values)
        answer = engine.asked({"kind": "planned", "scans": plan.count(f'"{_SCAN_OPERATOR}"')})
    relation = connection.sql(read.statement, params=values)
    if relation is None:
        raise QueryRefused("query_not_a_read", "the statement returns no rows")
    columns = [(name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]
    most = request["max_rows"]
    place = None if most is not None or read.plain is None else read.plain.place(known)
    if place is not None and _passed_on(engine, relation, columns, scans[place[0]], place[1]):
        return
    # One more than requested shows that there are more; without rows, only the columns are requested.
    rows = relation if most is None else relation.limit(most + 1 if most else 0)
    _answer(engine, rows.to_arrow_reader(_ROWS_AT_ONCE), columns)


def _plan(connection: Any, statement: Any, values: Any) -> str:
    """The plan of the statement as JSON. An error is the one that the statement itself has, with its own lines and columns."""
    try:
        return str(connection.execute(f"EXPLAIN (FORMAT json) {statement.query}", values).fetchall()[0][1])
    except duckdb.Error:
        connection.sql(statement, params=values)
        raise


def _name_database(connection: Any, name: str) -> None:
    """Give the database its name in PostgreSQL's protocol: clients put it before schemas."""
    current = connection.execute("SELECT current_database()").fetchall()[0][0]
    if folded(name) not in {folded(current), *_DUCKDBS_OWN}:
        connection.execute(f"ATTACH ':memory:' AS {quoted(name)}")
        connection.execute(f"USE {quoted(name)}")


def _passed_on(
    engine: EngineChannel, relation: Any, columns: list[tuple[str, str]], table: _Table, numbers: list[int]
) -> bool:
    """Send columns of a table as the engine scans them, in two thirds of the time that reading and writing them here takes. False, and
    nothing is sent, if a scan's values have another form than those of answers."""
    schema = _schema(relation.limit(0).to_arrow_table().schema, columns)
    if [table.schema.field(scan_column(number)).type for number in numbers] != schema.types:
        return False
    rows = table.rows(numbers, None, schema)
    ours, theirs = os.pipe()
    try:
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        engine.send({"kind": "answer"}, ours)
        while os.splice(rows, theirs, _PIPE_BYTES):
            pass
    finally:
        os.close(rows)
        os.close(theirs)
    return True


def _schema(found: Any, columns: list[tuple[str, str]]) -> Any:
    """The pyarrow.Schema of an answer. `columns`: names and types."""
    return pa.schema([target_field(field, *column) for field, column in zip(found, columns, strict=True)])


def _answer(engine: EngineChannel, reader: Any, columns: list[tuple[str, str]]) -> None:
    """Send the rows. `columns`: their names and types."""
    schema = _schema(reader.schema, columns)
    send_rows(engine, schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader))


def send_rows(engine: EngineChannel, schema: Any, batches: Iterator[Any]) -> None:
    """Send the rows. Nothing is sent before the first rows are available, so that most errors replace the answer."""
    first = next(batches, None)
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    engine.send({"kind": "answer"}, ours)
    with PipeSink(theirs) as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in () if first is None else grown(chain([first], batches)):
            for piece in pieces(batch):
                writer.write_batch(piece)


def bounded(sql: str) -> None:
    """Reject text that would take DuckDB's recursive parser very long or crash it: some hundred kilobytes of nested subqueries
    overflow its stack and end the process."""
    if len(sql) > MAX_SQL_CHARACTERS:
        raise QueryRefused("query_too_large", f"the statement is longer than {MAX_SQL_CHARACTERS} characters")
    depth = deepest = 0
    for character in sql:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    if deepest > MAX_NESTING:
        raise QueryRefused("query_too_large", f"the statement nests deeper than {MAX_NESTING} levels")


@dataclass(frozen=True, slots=True)
class _Read:
    """A statement that only reads rows, as DuckDB parsed it, and the names in it. `arrays`, `byteas`: names of parameters of these types.
    `plain`: what it reads, if it computes nothing."""

    statement: Any
    names: Named
    arrays: frozenset[str]
    byteas: frozenset[str]
    plain: PlainRead | None

    def values(self, given: Sequence[str | None]) -> dict[str, Bound]:
        return bound_values(self.statement.named_parameters, given, self.arrays, self.byteas)


def _single_read(connection: Any, sql: str) -> _Read:
    """The one statement. Rejected unless it is a SELECT that only reads rows."""
    bounded(sql)
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise QueryRefused("query_not_a_read", f"{len(statements)} statements; exactly one read is allowed")
    statement = statements[0]
    if statement.type != duckdb.StatementType.SELECT:
        raise QueryRefused("query_not_a_read", f"a statement of type {statement.type.name}; only SELECT is allowed")
    text = connection.execute("SELECT json_serialize_sql(?)", [statement.query]).fetchall()[0][0]
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise QueryRefused("query_too_large", "the statement nests too deeply to be examined") from error
    if tree.get("error") or len(tree.get("statements", [])) != 1:
        raise QueryRefused("query_not_a_read", tree.get("error_message") or "exactly one read is allowed")
    reason = refusal(tree)
    if reason is not None:
        raise QueryRefused("query_not_a_read", reason)
    return _Read(statement, named(tree), array_parameters(tree), bytea_parameters(tree), plain_read(tree))


def bound_values(
    names: Collection[str],
    given: Sequence[str | None],
    arrays: Collection[str] = (),
    byteas: Collection[str] = (),
) -> dict[str, Bound]:
    """The value of each parameter of a statement. DuckDB binds a string like a string literal, so the place decides its type; one that
    is an array may have PostgreSQL's notation, and is then bound as a list. One that is bytea, or its elements, has PostgreSQL's notation,
    which for a blob DuckDB would read differently.

    `names`: of the statement's parameters, as DuckDB has them. Raises QueryRefused(query_invalid).
    """
    named = [name for name in names if not name.isdecimal()]
    if named:
        raise QueryRefused("query_invalid", f"the parameter ${named[0]} has a name; write $1, $2, … or ?")
    match_parameters(max(map(int, names), default=0), len(given))
    found: dict[str, Bound] = {}
    for name in names:
        try:
            found[name] = _value(given[int(name) - 1], name in arrays, bytea_value if name in byteas else str)
        except ValueError as error:
            raise QueryRefused("query_invalid", f"the parameter ${name} is {error}") from None
    return found


def _value(text: str | None, is_array: bool, read: Callable[[str], str | bytes]) -> Bound:
    """`read`: from the text of the value, or of an element. Raises ValueError."""
    if text is None:
        return None
    if not is_array:
        return read(text)
    if not text.lstrip().startswith("{"):
        return text
    return [None if element is None else read(element) for element in array_elements(text)]


def _show(engine: EngineChannel, connection: Any, known: list[Any], tables: list[Any]) -> list[_Table]:
    """Make these tables visible to statements, in place of the previous ones. Returns their scans."""
    catalog = connection.execute("SELECT current_database()").fetchall()[0][0]
    for table in known:
        connection.execute(f"DROP VIEW {_place(catalog, table)}")
    scans: list[_Table] = []
    typing = connection.cursor()
    typing.execute("SET SESSION arrow_lossless_conversion = true")
    for number, table in enumerate(tables):
        columns = table["columns"]
        typed = [f"CAST(NULL AS {kind}) AS {scan_column(i)}" for i, (_, kind) in enumerate(columns)]
        empty = typing.sql(f"SELECT {', '.join([f'0::TINYINT AS {NOTHING}', *typed])}").limit(0)
        scans.append(_Table(engine, number, empty.to_arrow_table().schema))
        connection.register(f"{SCAN}{number}", scans[number])
        shown = [f"CAST({scan_column(i)} AS {kind}) AS {quoted(name)}" for i, (name, kind) in enumerate(columns)]
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.{quoted(table['schema'])}")
        place = _place(catalog, table)
        connection.execute(f"CREATE VIEW {place} AS SELECT {', '.join(shown)} FROM temp.main.{SCAN}{number}")
        for column, text in table["remarks"]:
            what = f"COLUMN {place}.{quoted(column)}" if column else f"VIEW {place}"
            connection.execute(f"COMMENT ON {what} IS {literal(text)}")
    if not known:
        # Hides DuckDB's own catalog functions, so that its catalog views list these relations and not the scans.
        for what in _CATALOG_FUNCTIONS:
            own = f"SELECT * FROM system.main.duckdb_{what}() WHERE NOT starts_with({what[:-1]}_name, '{SCAN}')"
            if what == "columns":
                own = f"SELECT * FROM system.main.duckdb_columns() WHERE NOT starts_with(table_name, '{SCAN}')"
            connection.execute(f"CREATE MACRO {quoted(catalog)}.main.duckdb_{what}() AS TABLE {own}")
        path = SEARCH_PATH if any(folded(table["schema"]) == "public" for table in tables) else "main"
        connection.execute(f"SET search_path = '{path}'")
    return scans


def _place(catalog: str, table: Mapping[str, Any]) -> str:
    return qualified(catalog, TableName(table["schema"], table["name"]))


class _Table(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """A table as scanned by DuckDB, with a column list and a condition; each scan requests the rows from the engine."""

    def __init__(self, engine: EngineChannel, number: int, schema: Any) -> None:
        self._engine = engine
        self._number = number
        self._schema = schema

    @property
    def schema(self) -> Any:
        return self._schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **_: Any) -> _Scan:  # noqa: A002
        """Called by DuckDB, from any of its threads."""
        wanted = self._schema.names if columns is None else columns
        condition = None if filter is None else condition_of(filter, self._schema)
        if filter is None or condition is not None:
            return _Scan(self._reader(wanted, condition))
        rows = self._reader(self._schema.names, None)
        schema = pa.schema([self._schema.field(name) for name in wanted])
        kept = (batch.filter(filter).select(wanted) for batch in rows)
        return _Scan(pa.RecordBatchReader.from_batches(schema, kept))

    def rows(self, numbers: Sequence[int | None], condition: Any, schema: Any = None) -> int:
        """A pipe with rows as an Arrow stream, which the caller closes. `schema`: with the scan's types; None: the scan's own."""
        ours, theirs = os.pipe()
        text = None if schema is None else b64encode(schema.serialize()).decode()
        message = {"kind": "scan", "table": self._number, "columns": numbers, "where": condition, "schema": text}
        self._engine.send(message, theirs)
        return ours

    def _reader(self, columns: list[str], condition: Any) -> Any:
        numbers = [None if name == NOTHING else int(name.removeprefix("c")) for name in columns]
        return pa.ipc.open_stream(pa.PythonFile(_Scanned(self.rows(numbers, condition)), mode="r"))


class _Scanned(PipeFile):
    """The pipe of a scan, which is closed with the last reference to it: DuckDB may stop reading early."""

    def __del__(self) -> None:
        os.close(self._descriptor)


class _Scan:
    """The interface of a dataset scanner that DuckDB requires."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def to_reader(self) -> Any:
        return self._reader
