"""All fault kinds. The action and remedy for each are in `engine.platform.fault_policy`."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    """Every fault of replication that a user can see. Values are the stable `code` of states and problems."""

    SOURCE_UNREACHABLE = "source_unreachable"
    SOURCE_AUTHENTICATION = "source_authentication"
    SOURCE_PRIVILEGE = "source_privilege"
    SOURCE_WAL_LEVEL = "source_wal_level"
    SOURCE_NO_SLOTS = "source_no_slots"
    SOURCE_NO_SENDERS = "source_no_senders"
    SOURCE_TIMEOUT = "source_timeout"
    SOURCE_SNAPSHOT_TOO_LARGE = "source_snapshot_too_large"
    """More transactions are open, or were rolled back since the oldest open one began, than the snapshot of a new slot can hold."""
    LOG_GAP = "log_gap"
    SLOT_DROPPED = "slot_dropped"
    SLOT_IN_USE = "slot_in_use"
    ORIGIN_UNSUPPORTED = "origin_unsupported"
    """The source's version cannot filter changes by replication origin."""
    DDL_CAPTURE_PRIVILEGE = "ddl_capture_privilege"
    """The source's user may not install or remove the DDL capture."""
    PUBLICATION_CHANGED = "publication_changed"
    QUEUE_DISK_FULL = "queue_disk_full"
    QUEUE_CORRUPT = "queue_corrupt"
    LOG_READER_DIED = "log_reader_died"
    LOG_UNREADABLE = "log_unreadable"
    LOG_NOT_DECODED = "log_not_decoded"
    """The source cannot decode its own log: an internal error of the server, which may be transient."""
    TARGET_LOCKED = "target_locked"
    TARGET_DISK_FULL = "target_disk_full"
    TARGET_UNAVAILABLE = "target_unavailable"
    TARGET_FILE_GONE = "target_file_gone"
    """The target's database file was removed, renamed or replaced while the engine wrote to it."""
    TARGET_FOREIGN = "target_foreign"
    """The target holds progress of another source or subscription under this name."""
    TABLE_MISSING = "table_missing"
    TABLE_NO_IDENTITY = "table_no_identity"
    TABLE_NOT_LOGGED = "table_not_logged"
    """The table, or a partition of it, is unlogged or foreign, so its changes are not in the log."""
    TABLE_COPY_CANCELLED = "table_copy_cancelled"
    """A reload of the table was cancelled, and its old rows are not updated any more."""
    TABLE_IS_PARTITION = "table_is_partition"
    """A table of the subscription became a partition of another one, and the log contains its changes under the root's name."""
    TABLE_NAME_COLLISION = "table_name_collision"
    SHARED_TABLE_CONFLICT = "shared_table_conflict"
    """The table does not fit into its shared table with the others: its source value is taken, or a column's type conflicts."""
    TABLE_UNFIT = "table_unfit"
    """The existing table on the target is incompatible with the source table's rows."""
    TABLE_KEY_NOT_UNIQUE = "table_key_not_unique"
    """A declared key does not identify the rows of a copy: two rows have the same key, or a key contains NULL."""
    TABLE_STRUCTURE_CHANGED = "table_structure_changed"
    TABLE_PARTITIONS_CHANGED = "table_partitions_changed"
    PARTITION_UNKNOWN = "partition_unknown"
    """A reload names a partition that the table does not have."""
    PARTITION_NOT_COMPARABLE = "partition_not_comparable"
    """Only the source can determine which rows are in a partition."""
    PARTITIONS_NOT_LOADED = "partitions_not_loaded"
    """A reload of partitions failed; the table keeps its rows and is still replicated."""
    SCHEMA_CHANGE_WAITING = "schema_change_waiting"
    """The target can follow a schema change, which a user has to approve first."""
    TABLE_NOT_DROPPED = "table_not_dropped"
    """A removed table was to be dropped on the target, and could not be."""
    VALUE_OUT_OF_DOMAIN = "value_out_of_domain"
    ROW_REFUSED = "row_refused"
    """A constraint or a trigger of the target's table rejects a row."""
    TOO_MANY_SET_ASIDE = "too_many_set_aside"
    """A table would have more quarantined rows than allowed."""
    NET_CHANGE_ANOMALY = "net_change_anomaly"
    COPY_FAILED = "copy_failed"
    COPY_LOST = "copy_lost"
    """The snapshot that a copy reads under can no longer be imported; the copy starts again."""
    DEFERRED_OVER_BUDGET = "deferred_over_budget"
    SPARK_FAILED = "spark_failed"
    EPOCH_LOST = "epoch_lost"
    INTERNAL = "internal"


class EngineFault(Exception):
    """A fault of a known kind. `subject`: the table, file or object; `detail`: what happened, without row values.

    Raise it `from` the driver's exception. Classify by SQLSTATE, errno or exception class, never by message text.
    """

    def __init__(self, kind: FaultKind, subject: str, detail: str) -> None:
        super().__init__(f"{kind.value}: {subject}: {detail}")
        self.kind = kind
        self.subject = subject
        self.detail = detail

    def __reduce__(self) -> tuple[type[EngineFault], tuple[FaultKind, str, str]]:
        return type(self), (self.kind, self.subject, self.detail)
