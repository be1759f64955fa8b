"""Fault policy: the engine's action and the user's remedy, one row per fault kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.model.fault import FaultKind


class Action(StrEnum):
    """The engine's action on a fault."""

    RETRY = "retry"
    PARK_TABLE = "park_table"
    TELL = "tell"
    """Send an event; no other action."""
    FAIL_SUBSCRIPTION = "fail_subscription"
    STOP_ENGINE = "stop_engine"


@dataclass(frozen=True, slots=True)
class Policy:
    """One row: the engine's action, and the remedy that is shown with the state."""

    action: Action
    remedy: str


_RELOAD_ALL = (
    "POST /subscriptions/{name}/reloads begins again at the end of the log and copies all tables; old rows stay readable until"
    " then."
)
_RELOAD_TABLE = (
    "POST /subscriptions/{name}/tables/{table_id}/reloads copies the table again; the other tables continue."
)
_RETRY_TABLE = (
    "POST /subscriptions/{name}/tables/{table_id}/retries then checks that this is corrected, and copies the table again; the other"
    " tables continue."
)

POLICIES: dict[FaultKind, Policy] = {
    FaultKind.SOURCE_UNREACHABLE: Policy(
        Action.RETRY, "Check that the source runs and that host and port are right; replication resumes automatically."
    ),
    FaultKind.SOURCE_AUTHENTICATION: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Correct user and password with PATCH /connections/{name}, then set desired_state to running.",
    ),
    FaultKind.SOURCE_PRIVILEGE: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Grant the user REPLICATION, SELECT on the tables and CREATE on the database, and BYPASSRLS if row-level security hides rows,"
        " then set desired_state to running; if only a table is parked, reload that table.",
    ),
    FaultKind.DDL_CAPTURE_PRIVILEGE: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Event triggers need a superuser, or the role that a provider offers instead (rds_superuser and the like): have such a user run"
        " the statements that GET /connections/{name}/ddl-capture shows. Without the trigger, Penstock reads schema changes from the"
        " log and the catalog.",
    ),
    FaultKind.SOURCE_WAL_LEVEL: Policy(
        Action.FAIL_SUBSCRIPTION, "Run ALTER SYSTEM SET wal_level = 'logical' on the source and restart it."
    ),
    FaultKind.SOURCE_NO_SLOTS: Policy(
        Action.FAIL_SUBSCRIPTION, "Raise max_replication_slots on the source or drop an unused slot."
    ),
    FaultKind.SOURCE_NO_SENDERS: Policy(
        Action.RETRY, "Raise max_wal_senders on the source; replication resumes automatically."
    ),
    FaultKind.SOURCE_TIMEOUT: Policy(
        Action.RETRY,
        "A long open transaction on the source, or a program that has its file open, holds this up; end it, or wait for it.",
    ),
    FaultKind.SOURCE_SNAPSHOT_TOO_LARGE: Policy(
        Action.RETRY,
        "Since the oldest open transaction of the source began, more transactions and savepoints were rolled back or are open than a"
        " slot's snapshot can contain. End the oldest one (pg_stat_activity, pg_prepared_xacts), or raise max_connections or"
        " max_prepared_transactions on the source and restart it, which enlarges the snapshot; the copy is retried automatically.",
    ),
    FaultKind.LOG_GAP: Policy(Action.FAIL_SUBSCRIPTION, _RELOAD_ALL),
    FaultKind.SLOT_DROPPED: Policy(
        Action.FAIL_SUBSCRIPTION,
        "The guard dropped the slot before the retained log could fill the source's disk. "
        + _RELOAD_ALL
        + " If desired_state is paused or stopped, the reload begins once it is running again.",
    ),
    FaultKind.SLOT_IN_USE: Policy(
        Action.RETRY,
        "Another client reads this slot; stop it. Replication resumes automatically when the slot is free.",
    ),
    FaultKind.ORIGIN_UNSUPPORTED: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Upgrade the source to PostgreSQL 16 or newer, or PATCH the subscription with"
        ' "capture": {"origin": "any"}; then set desired_state to running.',
    ),
    FaultKind.OWN_TABLE_UNFIT: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Let each node that has the table of capture.own_table have it with a replica identity and the column capture.own_column; then set"
        " desired_state to running. If the column was gone or renamed for a time, or the table not published, ids are missing in the log: "
        + _RELOAD_ALL,
    ),
    FaultKind.TWO_PHASE_UNSUPPORTED: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Upgrade the node that the reason names to PostgreSQL 15 or newer; then set desired_state to running.",
    ),
    FaultKind.PUBLICATION_CHANGED: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Changes may be missing since the publication was changed. POST /subscriptions/{name}/reloads restores the publication and"
        " copies all tables again. One that capture.publication names is not restored: have its owner do that first.",
    ),
    FaultKind.SENT_TABLES_MISSING: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Have the owner of the tables create the publication, or correct capture.publication; then set desired_state to running.",
    ),
    FaultKind.READER_UNFIT: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Replace the slot that capture.slot names: pg_drop_replication_slot(name), then pg_create_logical_replication_slot(name,"
        " 'pgoutput'). Or leave capture.slot out. Then set desired_state to running.",
    ),
    FaultKind.QUEUE_DISK_FULL: Policy(
        Action.RETRY, "Free space in the engine's data folder (PENSTOCK_HOME); replication resumes automatically."
    ),
    FaultKind.QUEUE_CORRUPT: Policy(
        Action.RETRY,
        "The damaged part is read from the source again; if the source no longer has it, a reload is needed.",
    ),
    FaultKind.LOG_READER_DIED: Policy(Action.RETRY, "None needed: the log reader is restarted."),
    FaultKind.LOG_UNREADABLE: Policy(
        Action.FAIL_SUBSCRIPTION, "The log contains data that this version does not support; " + _RELOAD_ALL
    ),
    FaultKind.LOG_NOT_DECODED: Policy(
        Action.RETRY,
        "The source fails to decode its log; see its server log. Replication is retried automatically. A newer minor version of"
        " PostgreSQL on the source may decode it. If it repeatedly fails at the same place, the subscription fails: "
        + _RELOAD_ALL,
    ),
    FaultKind.TARGET_LOCKED: Policy(
        Action.RETRY,
        "Another process holds the target file; close it. Replication starts automatically when the file is free.",
    ),
    FaultKind.TARGET_DISK_FULL: Policy(
        Action.RETRY, "Free space where the target file lies; replication resumes automatically."
    ),
    FaultKind.TARGET_UNAVAILABLE: Policy(
        Action.RETRY, "Check the target's path and permissions; replication resumes automatically."
    ),
    FaultKind.TARGET_FILE_GONE: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Restore the file, and prevent other programs from moving it while the engine uses it; then set desired_state to running. If"
        " there is no file, or one without this subscription's progress, all tables are copied; an older copy of the file is continued"
        " from its position if the changes since then are still available.",
    ),
    FaultKind.TARGET_FOREIGN: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Use another target file, or DELETE the subscription that filled this one. " + _RELOAD_ALL,
    ),
    FaultKind.TABLE_MISSING: Policy(
        Action.PARK_TABLE, "Create the table on the source, or remove it from the subscription. " + _RETRY_TABLE
    ),
    FaultKind.TABLE_NO_IDENTITY: Policy(
        Action.PARK_TABLE,
        'Add a primary key or set a REPLICA IDENTITY on the source, or give "insert_only": true. A declared key has to'
        " be one: without NULL, and another one in each row. " + _RETRY_TABLE,
    ),
    FaultKind.TABLE_NOT_LOGGED: Policy(
        Action.PARK_TABLE,
        "ALTER TABLE … SET LOGGED on the source for what the reason names; a partition may be detached, too. "
        + _RETRY_TABLE,
    ),
    FaultKind.TABLE_NOT_SENT: Policy(
        Action.PARK_TABLE,
        "Have the owner of the publication that capture.publication names change it as the reason says; a check of the connection has the"
        " statement. If schema_changes.policy is apply, the table is then copied automatically. " + _RETRY_TABLE,
    ),
    FaultKind.TABLE_SENT_OTHERWISE: Policy(Action.PARK_TABLE, _RELOAD_TABLE),
    FaultKind.TABLE_IS_PARTITION: Policy(
        Action.PARK_TABLE,
        "Remove the table from the subscription: its rows are replicated with the table that it is a partition of. Or detach it on the"
        " source. " + _RETRY_TABLE,
    ),
    FaultKind.TABLE_NOT_READ: Policy(
        Action.PARK_TABLE,
        "Correct what the reason names, for example GRANT SELECT on the table, or a longer statement_seconds. The next cycle reads"
        " the table again, and it continues by itself, without a new copy; penstock cycles start begins one at once.",
    ),
    FaultKind.TABLE_COPY_CANCELLED: Policy(
        Action.PARK_TABLE,
        "Reload the table: its changes since the cancelled reload began were not kept, and its rows stay as they were until then.",
    ),
    FaultKind.TABLE_NAME_COLLISION: Policy(
        Action.PARK_TABLE,
        'Map the table to another name with "target": {"schema", "name"}, or drop the table on the target. '
        + _RETRY_TABLE,
    ),
    FaultKind.SHARED_TABLE_CONFLICT: Policy(
        Action.PARK_TABLE,
        "Change what the reason names, on the source or in the table's declaration: a table that is removed and added again may have"
        ' another "shared_into". ' + _RETRY_TABLE,
    ),
    FaultKind.TABLE_UNFIT: Policy(
        Action.PARK_TABLE, "Change the table on the target as the reason says. " + _RETRY_TABLE
    ),
    FaultKind.TABLE_COLUMNS_UNFIT: Policy(
        Action.PARK_TABLE,
        "Correct the table's options of columns in the subscription, with the present names of its columns on the source; or restore the"
        " columns on the source. " + _RETRY_TABLE,
    ),
    FaultKind.TABLE_NODES_DIFFER: Policy(
        Action.PARK_TABLE,
        "Do what the reason asks for: give the table the same structure on each node that has it, or name its partitions in its place. It"
        " is copied again by itself then, if the subscription follows schema changes. " + _RETRY_TABLE,
    ),
    FaultKind.TABLE_KEY_NOT_UNIQUE: Policy(
        Action.PARK_TABLE,
        'Make the declared "key" unique and not null on the source, or declare another in the subscription. If a row is on several nodes,'
        " delete it on all but one; if the application does so by itself, wait until it has. " + _RETRY_TABLE,
    ),
    FaultKind.TABLE_STRUCTURE_CHANGED: Policy(Action.PARK_TABLE, _RELOAD_TABLE),
    FaultKind.TABLE_PARTITIONS_CHANGED: Policy(Action.PARK_TABLE, _RELOAD_TABLE),
    FaultKind.TABLE_NOT_DROPPED: Policy(
        Action.TELL,
        "Drop the table on the target yourself, after the objects that depend on it; or keep it: it is not written to any more.",
    ),
    FaultKind.PARTITION_UNKNOWN: Policy(
        Action.TELL, "GET /subscriptions/{name}/tables/{table_id}/partitions lists the table's partitions."
    ),
    FaultKind.TABLE_DIFFERS_AS_DECLARED: Policy(
        Action.TELL,
        "None needed: leave the table out of verifications. To follow every operation, set its operations to null; it is copied again.",
    ),
    FaultKind.PARTITION_NOT_COMPARABLE: Policy(Action.TELL, f"Reload the whole table: {_RELOAD_TABLE}"),
    FaultKind.PARTITIONS_NOT_LOADED: Policy(
        Action.TELL, f"Reload again when the table is live; or the whole table: {_RELOAD_TABLE}"
    ),
    FaultKind.SCHEMA_CHANGE_WAITING: Policy(
        Action.PARK_TABLE,
        "POST /subscriptions/{name}/tables/{table_id}/approvals runs the statements on the target and applies the changes kept since.",
    ),
    FaultKind.VALUE_OUT_OF_DOMAIN: Policy(
        Action.PARK_TABLE, 'Give the column "map_as": "text" in the subscription, or correct the value. ' + _RETRY_TABLE
    ),
    FaultKind.ROW_REFUSED: Policy(
        Action.PARK_TABLE,
        "GET /subscriptions/{name}/tables/{table_id}/refused-rows shows the rows and why. Correct them on the source, or the target's"
        ' table; or PATCH the table with "refused_rows": "set_aside", which quarantines such rows. ' + _RETRY_TABLE,
    ),
    FaultKind.TOO_MANY_SET_ASIDE: Policy(
        Action.PARK_TABLE,
        "This many refused rows indicate a common cause: GET /subscriptions/{name}/tables/{table_id}/refused-rows shows why. Correct"
        ' the target\'s table, or give the column "map_as": "text". ' + _RETRY_TABLE,
    ),
    FaultKind.NET_CHANGE_ANOMALY: Policy(Action.PARK_TABLE, _RELOAD_TABLE),
    FaultKind.COPY_LOST: Policy(Action.RETRY, "None needed: the copy starts again under a new snapshot."),
    FaultKind.COPY_FAILED: Policy(Action.PARK_TABLE, _RELOAD_TABLE),
    FaultKind.DEFERRED_OVER_BUDGET: Policy(Action.PARK_TABLE, _RELOAD_TABLE),
    FaultKind.SPARK_FAILED: Policy(
        Action.RETRY,
        "None needed: Spark is restarted if its Java process has ended, and the batch is repeated.",
    ),
    FaultKind.EPOCH_LOST: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Another engine has taken this subscription over; set desired_state to running to take it over again.",
    ),
    FaultKind.INTERNAL: Policy(
        Action.RETRY,
        "This is a defect of Penstock; replication is retried. Please report it with the engine's log.",
    ),
    FaultKind.LEDGER_UNBALANCED: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Nothing of the batch was written to the target. Set desired_state to running: the batch is computed again. If the fault returns,"
        " it is a defect of Penstock; please report it with the engine's log. " + _RELOAD_ALL,
    ),
    FaultKind.CHANGE_TRIGGERS_CHANGED: Policy(
        Action.PARK_TABLE,
        "Changes may be missing since the triggers were changed. A reload creates them again. " + _RELOAD_TABLE,
    ),
    FaultKind.CHANGE_TRIGGERS_PRIVILEGE: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Grant the user CREATE on the database, and membership in the role that owns the tables; on MariaDB TRIGGER on the tables and"
        " on those to which cascades refer, and all rights on the database penstock, or have an administrator run the statements that"
        " `penstock triggers plan` shows; then set desired_state to running.",
    ),
    FaultKind.CHANGE_TRIGGERS_MISSING: Policy(
        Action.PARK_TABLE,
        "Have an administrator of the source run the statements that `penstock triggers plan` shows for the tables. If the subscription has"
        " failed, set desired_state to running. If only a table is parked, " + _RETRY_TABLE,
    ),
    FaultKind.CHANGE_TRIGGERS_IN_USE: Policy(
        Action.TELL, "Delete the subscriptions that read the recorded changes, then remove the triggers."
    ),
    FaultKind.CHANGE_LOG_FOREIGN: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Find out who created the objects of the schema penstock, and why. Have them dropped, or given to the connection's user or to the"
        " owner of the database; then set desired_state to running.",
    ),
    FaultKind.NOT_WITH_THIS_CAPTURE: Policy(
        Action.TELL,
        "Use a source whose capture has it, as it is not possible with this one; GET /connection-kinds lists the captures of each kind of"
        " connection.",
    ),
    FaultKind.CASCADE_UNCAPTURED: Policy(
        Action.PARK_TABLE,
        "Declare some of the foreign keys without a cascade, so that fewer paths lead to the table. " + _RETRY_TABLE,
    ),
    FaultKind.SOURCE_WRITES_HIDDEN: Policy(
        Action.PARK_TABLE, "Let every session on the source log whole rows (binlog_format ROW). " + _RELOAD_TABLE
    ),
    FaultKind.GTID_DOMAINS: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Let all writers on the source use one gtid_domain_id, then set desired_state to running.",
    ),
    FaultKind.BINLOG_PURGED: Policy(
        Action.FAIL_SUBSCRIPTION,
        "Let the source keep binary logs for longer (binlog_expire_logs_seconds). POST /subscriptions/{name}/reloads copies all tables; old"
        " rows stay readable until the swap.",
    ),
    FaultKind.NODE_SILENT: Policy(
        Action.RETRY,
        "Check that the node runs and can be reached: what needs its log waits. Replication resumes by itself.",
    ),
    FaultKind.GLOBAL_IN_DOUBT: Policy(
        Action.PARK_TABLE,
        "Make the nodes agree on the transaction that the reason names. The table is copied again by itself, as the nodes have it, if the"
        " subscription follows schema changes. " + _RETRY_TABLE,
    ),
    FaultKind.CYCLE_OVERDUE: Policy(
        Action.TELL, "Let comparisons begin less often, or give them a larger share of the source's time."
    ),
    FaultKind.KEY_NOT_ORDERED: Policy(
        Action.PARK_TABLE, 'Declare a "key" of columns that the source sorts by their bytes. ' + _RETRY_TABLE
    ),
    FaultKind.READER_PROTOCOL: Policy(
        Action.RETRY, "Correct the external reader; replication resumes by itself when it connects again."
    ),
    FaultKind.LAKE_CONFLICT: Policy(
        Action.RETRY, "Let no other program write to the target's tables; the commit is tried again by itself."
    ),
}

RESERVED = frozenset(
    {
        FaultKind.SOURCE_WRITES_HIDDEN,
        FaultKind.GTID_DOMAINS,
        FaultKind.BINLOG_PURGED,
        FaultKind.CYCLE_OVERDUE,
        FaultKind.KEY_NOT_ORDERED,
        FaultKind.READER_PROTOCOL,
        FaultKind.LAKE_CONFLICT,
    }
)
"""Codes kept for kinds of source and target that do not exist yet. A kind leaves this set with the first code that raises it."""


RENEWED = frozenset(
    {
        FaultKind.TABLE_STRUCTURE_CHANGED,
        FaultKind.TABLE_PARTITIONS_CHANGED,
        FaultKind.TABLE_SENT_OTHERWISE,
        FaultKind.GLOBAL_IN_DOUBT,
    }
)
"""Faults of a table that a new copy repairs. The engine starts it by itself if the subscription follows schema changes."""


OF_A_STRUCTURE = frozenset(
    {
        FaultKind.TABLE_STRUCTURE_CHANGED,
        FaultKind.TABLE_NO_IDENTITY,
        FaultKind.TABLE_COLUMNS_UNFIT,
        FaultKind.TABLE_NODES_DIFFER,
        FaultKind.GLOBAL_IN_DOUBT,
    }
)
"""Faults of a structure that the log announces: they concern its table only."""


def policy(kind: FaultKind) -> Policy:
    """The row of this kind. Every kind has one."""
    return POLICIES[kind]
