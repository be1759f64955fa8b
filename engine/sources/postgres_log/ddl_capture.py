"""DDL capture: event triggers on the source that write a DDL message into the log in the transaction that changes a table's structure.

It is installed on request only, and consists of one schema with one function, and three event triggers.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import psycopg

from engine.model.ddl import DdlCapture
from engine.model.fault import FaultKind
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import (
    COLUMN_FACTS,
    INDEX_FACTS,
    MISSING_VALUE,
    TABLE_FACTS,
    UNIQUE_INDEXES,
    USABLE_INDEX,
)
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.types import TYPE_FACTS, TYPES

VERSION = 3
"""Version of the function and of its messages; each message carries it."""
PREFIX = "penstock.ddl"
MOST_BYTES = 256 * 1024
"""Upper bound of a DDL message's content. For a larger schema the message says only that the table changed."""
_MOST_TABLES = 1000
"""Tables described for one command; if the command changes more, the message marks the others as unknown."""

_NOTE = f"Penstock: tells changes of structure, version {VERSION}"
_SCHEMA_NOTE = "Penstock: made for penstock.tell_ddl()"
_TRIGGERS = ("penstock_ddl_drop", "penstock_ddl_end", "penstock_ddl_rewrite")
_NAMES = ", ".join(f"'{name}'" for name in _TRIGGERS)

_MARK = f"""
SELECT coalesce(CASE WHEN count(*) = {len(_TRIGGERS)} THEN
           string_agg(concat_ws(' ', e.oid, e.xmin, p.oid, p.xmin), ',' ORDER BY e.evtname) END, '')
FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid = e.evtfoid
WHERE e.evtname IN ({_NAMES}) AND e.evtenabled = 'A'"""
"""Fingerprint of triggers and function: differs after one was changed or switched off and on; empty if one is missing or disabled."""

_TABLE = f"""
    SELECT jsonb_build_object(
        'server', current_setting('server_version_num')::int,
        'writers', (SELECT jsonb_agg(w.xid) FROM (
                        SELECT c.xmin::text::bigint FROM pg_class c WHERE c.oid = told
                        UNION SELECT a.xmin::text::bigint FROM pg_attribute a WHERE a.attrelid = told AND a.attnum > 0
                        UNION SELECT i.xmin::text::bigint FROM pg_index i WHERE i.indrelid = told) AS w(xid)),
        'table', (SELECT jsonb_build_array({TABLE_FACTS})
                  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = told),
        'columns', (SELECT jsonb_agg(jsonb_build_array({COLUMN_FACTS}) ORDER BY a.attnum)
                    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                    WHERE a.attrelid = told AND a.attnum > 0 AND NOT a.attisdropped),
        'indexes', (SELECT jsonb_agg(jsonb_build_array({INDEX_FACTS}) ORDER BY i.indexrelid)
                    FROM {UNIQUE_INDEXES}
                    WHERE i.indrelid = told AND {USABLE_INDEX}),
        'types', (WITH RECURSIVE used(oid) AS (
                      SELECT a.atttypid FROM pg_attribute a
                      WHERE a.attrelid = told AND a.attnum > 0 AND NOT a.attisdropped
                      UNION
                      SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
                      FROM used u JOIN pg_type t ON t.oid = u.oid
                      WHERE t.typtype = 'd' OR t.typelem <> 0)
                  SELECT jsonb_agg(jsonb_build_array({TYPE_FACTS}))
                  FROM used u JOIN {TYPES} ON t.oid = u.oid),
        'leaves', (WITH leaf AS (
                       SELECT l.oid, l.relname, l.relreplident::text
                       FROM pg_partition_tree(told) AS p JOIN pg_class l ON l.oid = p.relid
                       WHERE p.isleaf AND p.relid <> told),
                   identity AS (
                       SELECT min(l.relname::text) AS name, l.relreplident, x.columns
                       FROM leaf l LEFT JOIN LATERAL (
                           SELECT k.columns FROM {UNIQUE_INDEXES}
                           WHERE i.indrelid = l.oid AND {USABLE_INDEX}
                             AND CASE l.relreplident WHEN 'i' THEN i.indisreplident
                                                     WHEN 'd' THEN i.indisprimary AND i.indimmediate ELSE false END
                       ) AS x ON true
                       GROUP BY l.relreplident, x.columns),
                   fill AS (
                       SELECT DISTINCT a.attname, {MISSING_VALUE} AS value
                       FROM leaf l JOIN pg_attribute a ON a.attrelid = l.oid JOIN pg_type t ON t.oid = a.atttypid
                       WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atthasmissing)
                   SELECT jsonb_build_object(
                       'identities', (SELECT jsonb_agg(jsonb_build_array(name, relreplident, columns)) FROM identity),
                       'fills', (SELECT jsonb_agg(jsonb_build_array(attname, value)) FROM fill))))
"""
_ANCESTORS = "SELECT p.relid::oid FROM pg_partition_ancestors(told) AS p WHERE p.relid <> told"

_HOLDING = """
    WITH RECURSIVE holding(oid, listed) AS (
        SELECT e.oid, true FROM unnest(enums) AS e(oid) UNION ALL SELECT m.oid, false FROM unnest(made) AS m(oid)
        UNION
        SELECT p.oid, h.listed AND p.typtype IN ('b', 'd')
        FROM holding h JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = h.oid
        LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND d.objsubid > 0
        JOIN pg_type p ON p.oid = CASE WHEN d.classid = 'pg_type'::regclass THEN d.objid ELSE c.reltype END)
    SELECT DISTINCT c.oid FROM holding h JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = h.oid
    JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND d.objsubid > 0
    WHERE NOT h.listed AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND c.oid <> ALL (touched)
"""
"""Tables with columns that contain these types at any depth. For enums, and arrays and domains over enums, messages list the labels."""

_APART = f"PERFORM pg_logical_emit_message(false, '{PREFIX}', '');"
"""Empty separator message. The LSN of a message is its end, that of a row change its start: without a record between them the two could
get the same LSN and be decoded in the wrong order."""

_FUNCTION = f"""CREATE OR REPLACE FUNCTION penstock.tell_ddl() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET timezone = 'UTC'
SET extra_float_digits = 3 SET bytea_output = 'hex' SET lc_monetary = 'C' SET quote_all_identifiers = off
AS $penstock$
#variable_conflict use_variable
DECLARE
    head jsonb := jsonb_build_object('v', {VERSION}, 'tag', tg_tag);
    touched oid[];
    unknown oid[];
    enums oid[] := '{{}}';
    made oid[] := '{{}}';
    told oid;
    labelled record;
    content jsonb;
BEGIN
    head := head || jsonb_build_object('by', ({_MARK}));

    IF tg_event = 'table_rewrite' THEN
        told := pg_event_trigger_table_rewrite_oid();
        PERFORM pg_logical_emit_message(true, '{PREFIX}', convert_to((head || jsonb_build_object(
            'rewritten', to_jsonb(array_append(ARRAY({_ANCESTORS}), told)),
            'reason', pg_event_trigger_table_rewrite_reason()))::text, 'UTF8'));
        RETURN;
    END IF;

    IF tg_event = 'sql_drop' THEN
        touched := ARRAY(SELECT DISTINCT d.objid FROM pg_event_trigger_dropped_objects() AS d
                         JOIN pg_class c ON c.oid = d.objid
                         WHERE d.classid = 'pg_class'::regclass AND d.objsubid > 0 AND c.relkind IN ('r', 'p'));
        made := ARRAY(SELECT c.reltype FROM pg_event_trigger_dropped_objects() AS d JOIN pg_class c ON c.oid = d.objid
                      WHERE d.classid = 'pg_class'::regclass AND d.objsubid > 0 AND c.reltype <> 0);
    ELSE
        touched := ARRAY(SELECT DISTINCT d.objid FROM pg_event_trigger_ddl_commands() AS d
                         JOIN pg_class c ON c.oid = d.objid
                         WHERE d.classid = 'pg_class'::regclass AND d.command_tag = 'ALTER TABLE'
                           AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't');
        FOR told IN SELECT d.objid FROM pg_event_trigger_ddl_commands() AS d
                    JOIN pg_class c ON c.oid = d.objid
                    WHERE d.classid = 'pg_class'::regclass AND d.command_tag = 'CREATE TABLE' AND c.relispartition LOOP
            PERFORM pg_logical_emit_message(true, '{PREFIX}', convert_to((head || jsonb_build_object(
                'partition', told, 'below', to_jsonb(ARRAY({_ANCESTORS}))))::text, 'UTF8'));
        END LOOP;
        enums := ARRAY(SELECT t.oid FROM pg_event_trigger_ddl_commands() AS d JOIN pg_type t ON t.oid = d.objid
                       WHERE d.classid = 'pg_type'::regclass AND d.command_tag = 'ALTER TYPE' AND t.typtype = 'e');
        made := ARRAY(SELECT c.reltype FROM pg_event_trigger_ddl_commands() AS d JOIN pg_class c ON c.oid = d.objid
                      WHERE d.classid = 'pg_class'::regclass AND d.command_tag IN ('ALTER TABLE', 'ALTER TYPE') AND c.reltype <> 0);
        FOR labelled IN SELECT t.oid, ARRAY(
                                   WITH RECURSIVE used(oid) AS (
                                       SELECT t.oid UNION
                                       SELECT u.oid FROM used JOIN pg_type u ON used.oid IN (u.typelem, u.typbasetype))
                                   SELECT oid FROM used) AS used,
                               ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.oid) AS labels
                        FROM pg_type t WHERE t.oid = ANY (enums) LOOP
            content := head || jsonb_build_object('types', to_jsonb(labelled.used), 'labels', to_jsonb(labelled.labels), 'writers',
                (SELECT jsonb_agg(DISTINCT e.xmin::text::bigint) FROM pg_enum e WHERE e.enumtypid = labelled.oid));
            IF octet_length(content::text) > {MOST_BYTES} - 4096 THEN
                content := head || jsonb_build_object('unknown', NULL);
            END IF;
            PERFORM pg_logical_emit_message(true, '{PREFIX}', convert_to(content::text, 'UTF8'));
        END LOOP;
    END IF;

    -- Of these the command may have changed something without holding the lock that keeps others from doing so as well.
    unknown := ARRAY(
        SELECT p.relid::oid FROM unnest(touched) AS w(oid) CROSS JOIN LATERAL pg_partition_ancestors(w.oid) AS p
        WHERE p.relid <> ALL (touched)
        UNION (
            WITH RECURSIVE below(oid) AS (
                SELECT i.inhrelid FROM unnest(touched) AS w(oid) JOIN pg_inherits i ON i.inhparent = w.oid
                JOIN pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition
                UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid)
            SELECT b.oid FROM below b WHERE b.oid <> ALL (touched))
        UNION ({_HOLDING}));
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
       OR cardinality(touched) > {_MOST_TABLES} THEN
        -- This transaction sees the catalog as it was when it began: what others changed since is missing in it.
        unknown := unknown || touched;
        touched := '{{}}';
    END IF;
    FOREACH told IN ARRAY touched LOOP
        content := head || ({_TABLE});
        IF octet_length(content::text) > {MOST_BYTES} - 4096 THEN
            unknown := array_append(unknown, told);
        ELSE
            PERFORM pg_logical_emit_message(true, '{PREFIX}', convert_to(content::text, 'UTF8'));
        END IF;
    END LOOP;
    IF cardinality(unknown) > 0 THEN
        content := head || jsonb_build_object('unknown',
            CASE WHEN cardinality(unknown) <= {_MOST_TABLES} THEN to_jsonb(unknown) END);
        PERFORM pg_logical_emit_message(true, '{PREFIX}', convert_to(content::text, 'UTF8'));
    END IF;
    {_APART}
EXCEPTION WHEN OTHERS THEN
    BEGIN
        PERFORM pg_logical_emit_message(true, '{PREFIX}',
            convert_to(jsonb_build_object('v', {VERSION}, 'tag', tg_tag, 'by', '', 'unknown', NULL)::text, 'UTF8'));
        {_APART}
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
END
$penstock$"""
"""The event trigger function. It catches its own errors, so that the user's DDL command never fails because of it."""

_ALTERED = "'ALTER TABLE', 'ALTER TYPE', 'CREATE TABLE'"
_DROPPED = (
    "'ALTER EXTENSION', 'DROP ACCESS METHOD', 'DROP COLLATION', 'DROP DOMAIN', 'DROP EXTENSION', 'DROP FUNCTION',"
    " 'DROP OPERATOR CLASS', 'DROP OWNED', 'DROP ROUTINE', 'DROP SCHEMA', 'DROP TYPE'"
)
"""Commands other than ALTER TABLE that can drop columns of tables (CASCADE)."""
_EVENTS = {
    "penstock_ddl_end": f"ddl_command_end WHEN TAG IN ({_ALTERED})",
    "penstock_ddl_drop": f"sql_drop WHEN TAG IN ({_DROPPED})",
    "penstock_ddl_rewrite": "table_rewrite",
}

_STATE = f"""
SELECT coalesce(obj_description(n.oid, 'pg_namespace') LIKE 'Penstock: %', false), p.oid IS NOT NULL,
       coalesce(obj_description(p.oid, 'pg_proc'), ''), coalesce(p.prosrc, ''),
       ({_MARK}),
       (SELECT count(*) FROM pg_event_trigger WHERE evtname IN ({_NAMES})),
       EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid
                 AND NOT (d.classid = 'pg_proc'::regclass AND d.objid = p.oid)),
       n.oid IS NOT NULL
FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = 'penstock'
LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'tell_ddl' AND p.pronargs = 0
"""
_RUNNING = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype IN ('virtualxid', 'transactionid') AND granted AND mode = 'ExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class _State:
    schema_ours: bool
    function: bool
    note: str
    body: str
    mark: str
    triggers: int
    shared: bool
    schema: bool


def read_capture(connector: Connector) -> DdlCapture:
    """The installed state, and the statements that would install and remove it."""
    with connector.session() as connection:
        return state(connection)


def state(connection: PostgresConnection) -> DdlCapture:
    """As `read_capture`, in an open session."""
    return _capture(_state(connection))


def install(connector: Connector) -> DdlCapture:
    """Install or upgrade the DDL capture. Idempotent. Raises EngineFault(DDL_CAPTURE_PRIVILEGE) if the user lacks the privilege."""
    with connector.session() as connection:
        found = _capture(_state(connection))
        if not found.current:
            _run(connection, found.install_sql)
        return _capture(_state(connection))


def remove(connector: Connector) -> DdlCapture:
    """Remove every part of the DDL capture that exists. Idempotent. Raises EngineFault(DDL_CAPTURE_PRIVILEGE) as `install`."""
    with connector.session() as connection:
        found = _capture(_state(connection))
        if found.installed:
            _run(connection, found.remove_sql)
        return _capture(_state(connection))


def _run(connection: PostgresConnection, statements: tuple[str, ...]) -> None:
    try:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())
    except psycopg.Error as error:
        raise SOURCE.fault(error, "ddl-capture", {"42501": FaultKind.DDL_CAPTURE_PRIVILEGE}) from error


def _state(connection: PostgresConnection) -> _State:
    return _State(*connection.execute(_STATE).fetchall()[0])


def _capture(state: _State) -> DdlCapture:
    installed = state.function or state.triggers > 0
    version = state.note.rpartition(" ")[2] if state.note.startswith(_NOTE.rpartition(" ")[0]) else ""
    current = bool(state.mark) and state.note == _NOTE and state.body.strip() == _body().strip()
    return DdlCapture(
        installed=installed,
        version=int(version) if version.isdecimal() else None,
        current=current,
        install_sql=_install_sql(state),
        remove_sql=_remove_sql(state),
    )


def _body() -> str:
    return _FUNCTION.split("$penstock$")[1]


def _install_sql(state: _State) -> tuple[str, ...]:
    schema = [] if state.schema else ["CREATE SCHEMA penstock", f"COMMENT ON SCHEMA penstock IS '{_SCHEMA_NOTE}'"]
    triggers = []
    for name, event in _EVENTS.items():
        triggers.append(f"CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION penstock.tell_ddl()")
        triggers.append(f"ALTER EVENT TRIGGER {name} ENABLE ALWAYS")
    return (
        *(f"DROP EVENT TRIGGER IF EXISTS {name}" for name in _EVENTS),
        *schema,
        _FUNCTION,
        f"COMMENT ON FUNCTION penstock.tell_ddl() IS '{_NOTE}'",
        *triggers,
    )


def _remove_sql(state: _State) -> tuple[str, ...]:
    """The schema is dropped only if Penstock created it and it contains nothing else."""
    schema = ["DROP SCHEMA IF EXISTS penstock"] if not state.shared and (state.schema_ours or not state.schema) else []
    return (
        *(f"DROP EVENT TRIGGER IF EXISTS {name}" for name in _EVENTS),
        "DROP FUNCTION IF EXISTS penstock.tell_ddl()",
        *schema,
    )


class CaptureWatch:
    """Determines from when on every DDL command is in the log. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mark = ""
        self._before: frozenset[str] | None = None
        """Transactions that were open when the mark was first seen: their commands may have started before the trigger existed."""

    def in_force(self, connection: PostgresConnection) -> str:
        """The mark of the trigger if it is in force for all transactions, else empty.

        If two calls return the same mark, every DDL command between them has a DDL message in the log.
        """
        (mark,) = connection.execute(_MARK).fetchall()[0]
        with self._lock:
            if mark == self._mark and self._before is None:
                return self._mark
            running = frozenset(str(row[0]) for row in connection.execute(_RUNNING).fetchall())
            before = running if mark != self._mark or self._before is None else self._before & running
            self._mark, self._before = mark, (before or None) if mark else None
            return "" if self._before else self._mark
