"""Kinds of fault in one list. What to do about each is decided in one other place, `engine.platform.fault_policy`."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    """Every way in which replication can fail that a person may see. Values are the stable `code` of states and problems."""

    SOURCE_UNREACHABLE = "source_unreachable"
    SOURCE_AUTHENTICATION = "source_authentication"
    SOURCE_PRIVILEGE = "source_privilege"
    SOURCE_WAL_LEVEL = "source_wal_level"
    SOURCE_NO_SLOTS = "source_no_slots"
    SOURCE_NO_SENDERS = "source_no_senders"
    SOURCE_TIMEOUT = "source_timeout"
    SOURCE_SNAPSHOT_TOO_LARGE = "source_snapshot_too_large"
    """More transactions are open or rolled back behind the oldest open one than a slot's snapshot has room for."""
    LOG_GAP = "log_gap"
    SLOT_DROPPED = "slot_dropped"
    SLOT_IN_USE = "slot_in_use"
    ORIGIN_UNSUPPORTED = "origin_unsupported"
    """The source is too old to leave out what came to it by replication."""
    DDL_CAPTURE_PRIVILEGE = "ddl_capture_privilege"
    """The source's user may not install or remove what tells changes of structure in the log."""
    PUBLICATION_CHANGED = "publication_changed"
    QUEUE_DISK_FULL = "queue_disk_full"
    QUEUE_CORRUPT = "queue_corrupt"
    LOG_READER_DIED = "log_reader_died"
    LOG_UNREADABLE = "log_unreadable"
    LOG_NOT_DECODED = "log_not_decoded"
    """The source cannot decode its own log: an error of the server's, which passes where it was a matter of the moment."""
    TARGET_LOCKED = "target_locked"
    TARGET_DISK_FULL = "target_disk_full"
    TARGET_UNAVAILABLE = "target_unavailable"
    TARGET_FILE_GONE = "target_file_gone"
    """The target's file was removed, renamed or replaced while it was written to."""
    TARGET_FOREIGN = "target_foreign"
    """The target holds progress of another source or subscription under this name."""
    TABLE_MISSING = "table_missing"
    TABLE_NO_IDENTITY = "table_no_identity"
    TABLE_NOT_LOGGED = "table_not_logged"
    """The table, or a partition of it, is of a kind whose changes do not get into the log: unlogged, or foreign."""
    TABLE_COPY_CANCELLED = "table_copy_cancelled"
    """A reload of the table was cancelled, and its old rows do not follow their source any more."""
    TABLE_IS_PARTITION = "table_is_partition"
    """A table of the subscription became a partition of another one, and its changes come under that one's name."""
    TABLE_NAME_COLLISION = "table_name_collision"
    SHARED_TABLE_CONFLICT = "shared_table_conflict"
    """The table cannot be shown in its shared table beside the others there: its source value, or the type of a column."""
    TABLE_UNFIT = "table_unfit"
    """The table that its owner made on the target cannot take this one's rows as it stands."""
    TABLE_KEY_NOT_UNIQUE = "table_key_not_unique"
    """A declared key does not tell the rows of a copy apart: two have the same, or one has none."""
    TABLE_STRUCTURE_CHANGED = "table_structure_changed"
    TABLE_PARTITIONS_CHANGED = "table_partitions_changed"
    PARTITION_UNKNOWN = "partition_unknown"
    """A reload names a partition that the table does not have."""
    PARTITION_NOT_COMPARABLE = "partition_not_comparable"
    """Which rows are in a partition can be told on the source alone."""
    PARTITIONS_NOT_LOADED = "partitions_not_loaded"
    """A reload of partitions came to nothing; the table goes on with the rows that it had."""
    SCHEMA_CHANGE_WAITING = "schema_change_waiting"
    """The target could follow a change of structure, and somebody has to approve of it first."""
    TABLE_NOT_DROPPED = "table_not_dropped"
    """A table that was removed was to go from the target too, and stays there."""
    VALUE_OUT_OF_DOMAIN = "value_out_of_domain"
    ROW_REFUSED = "row_refused"
    """A constraint or a trigger of the target's table refuses a row."""
    TOO_MANY_SET_ASIDE = "too_many_set_aside"
    """More rows of a table would stand aside than may."""
    NET_CHANGE_ANOMALY = "net_change_anomaly"
    COPY_FAILED = "copy_failed"
    COPY_LOST = "copy_lost"
    """The snapshot that a copy reads under can no longer be imported; the copy starts again."""
    DEFERRED_OVER_BUDGET = "deferred_over_budget"
    SPARK_FAILED = "spark_failed"
    EPOCH_LOST = "epoch_lost"
    INTERNAL = "internal"


class EngineFault(Exception):
    """A fault of a known kind. `subject` names the table, file or object; `detail` says what happened, without row values.

    Raise it `from` the driver's own exception. Classify by SQLSTATE, errno or exception class, never by message text.
    """

    def __init__(self, kind: FaultKind, subject: str, detail: str) -> None:
        super().__init__(f"{kind.value}: {subject}: {detail}")
        self.kind = kind
        self.subject = subject
        self.detail = detail

    def __reduce__(self) -> tuple[type[EngineFault], tuple[FaultKind, str, str]]:
        return type(self), (self.kind, self.subject, self.detail)
