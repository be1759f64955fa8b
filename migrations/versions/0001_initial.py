"""The control database's first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0001_initial"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "connections",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("secret_names", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("secrets_sealed", sa.String(), nullable=True),
        sa.Column("stamp", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("updated_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_connections")),
        sa.UniqueConstraint("name", name=op.f("uq_connections_name")),
    )
    op.create_table(
        "engines",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("instance", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("report_sequence", sa.Integer(), nullable=False),
        sa.Column("registered_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("seen_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("lost_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_engines")),
        sa.UniqueConstraint("instance", name=op.f("uq_engines_instance")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("subscription", sa.String(length=63), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("remedy", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"], unique=False)
    op.create_index(op.f("ix_events_kind"), "events", ["kind"], unique=False)
    op.create_index(op.f("ix_events_subscription"), "events", ["subscription"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=512), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        sa.UniqueConstraint("principal", "route", "key", name=op.f("uq_idempotency_keys_principal_route_key")),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("subscription", sa.String(length=63), nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_outbox_delivered_at"), "outbox", ["delivered_at"], unique=False)
    op.create_index(op.f("ix_outbox_subscription"), "outbox", ["subscription"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
    )
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.Integer(), nullable=False),
        sa.Column("slot", sa.String(length=63), nullable=False),
        sa.Column("desired_state", sa.String(length=16), nullable=False),
        sa.Column("patterns", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("capture", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("batch", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("apply", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("queue", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("remedy", sa.String(), nullable=True),
        sa.Column("state_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("engine_id", sa.String(length=64), nullable=True),
        sa.Column("source_position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("captured_position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("applied_position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("lag_bytes", sa.BigInteger(), nullable=True),
        sa.Column("lag_seconds", sa.Float(), nullable=True),
        sa.Column("retained_bytes", sa.BigInteger(), nullable=True),
        sa.Column("progress_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("stamp", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("updated_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["connections.id"], name=op.f("fk_subscriptions_source_id_connections")),
        sa.ForeignKeyConstraint(["target_id"], ["connections.id"], name=op.f("fk_subscriptions_target_id_connections")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscriptions")),
        sa.UniqueConstraint("name", name=op.f("uq_subscriptions_name")),
        sa.UniqueConstraint("slot", name=op.f("uq_subscriptions_slot")),
    )
    op.create_index(op.f("ix_subscriptions_source_id"), "subscriptions", ["source_id"], unique=False)
    op.create_index(op.f("ix_subscriptions_target_id"), "subscriptions", ["target_id"], unique=False)
    op.create_table(
        "batches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("after", server.db.types.PositionText(length=64), nullable=False),
        sa.Column("end", server.db.types.PositionText(length=64), nullable=False),
        sa.Column("transactions", sa.Integer(), nullable=False),
        sa.Column("rows", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("net_rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(length=16), nullable=False),
        sa.Column("demanded", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("tables", sa.Integer(), nullable=False),
        sa.Column("committed_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_batches_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        sa.UniqueConstraint("subscription_id", "epoch", "number", name=op.f("uq_batches_subscription_id_epoch_number")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_batches_subscription_id"), "batches", ["subscription_id"], unique=False)
    op.create_table(
        "freshness_waits",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("asked", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("tables", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("named", sa.Boolean(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("ended_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("ending", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_freshness_waits_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_freshness_waits")),
    )
    op.create_index(op.f("ix_freshness_waits_ended_at"), "freshness_waits", ["ended_at"], unique=False)
    op.create_index(op.f("ix_freshness_waits_status"), "freshness_waits", ["status"], unique=False)
    op.create_index(op.f("ix_freshness_waits_subscription_id"), "freshness_waits", ["subscription_id"], unique=False)
    op.create_table(
        "tables",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("schema_name", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("target_schema", sa.String(), nullable=False),
        sa.Column("target_name", sa.String(), nullable=False),
        sa.Column("key", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("operations", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("where", sa.String(), nullable=True),
        sa.Column("insert_only", sa.Boolean(), nullable=False),
        sa.Column("map_as", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("from_pattern", sa.Boolean(), nullable=False),
        sa.Column("desired_state", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("remedy", sa.String(), nullable=True),
        sa.Column("state_position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("state_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("copied_rows", sa.BigInteger(), nullable=True),
        sa.Column("copied_bytes", sa.BigInteger(), nullable=True),
        sa.Column("copied_percent", sa.Float(), nullable=True),
        sa.Column("copied_eta_seconds", sa.Float(), nullable=True),
        sa.Column("stamp", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_tables_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tables")),
    )
    op.create_index(op.f("ix_tables_subscription_id"), "tables", ["subscription_id"], unique=False)
    op.create_index(
        "uq_tables_present_name",
        "tables",
        ["subscription_id", "schema_name", "name"],
        unique=True,
        sqlite_where=sa.text("state <> 'removed'"),
        postgresql_where=sa.text("state <> 'removed'"),
    )
    op.create_table(
        "verifications",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("asked", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("results", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("problem", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("ended_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_verifications_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
    )
    op.create_index(op.f("ix_verifications_created_at"), "verifications", ["created_at"], unique=False)
    op.create_index(op.f("ix_verifications_state"), "verifications", ["state"], unique=False)
    op.create_index(op.f("ix_verifications_subscription_id"), "verifications", ["subscription_id"], unique=False)
    op.create_table(
        "reloads",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("table_id", sa.String(length=16), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("percent", sa.Float(), nullable=True),
        sa.Column("eta_seconds", sa.Float(), nullable=True),
        sa.Column("problem", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("ended_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_reloads_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["table_id"], ["tables.id"], name=op.f("fk_reloads_table_id_tables"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reloads")),
    )
    op.create_index(op.f("ix_reloads_created_at"), "reloads", ["created_at"], unique=False)
    op.create_index(op.f("ix_reloads_state"), "reloads", ["state"], unique=False)
    op.create_index(op.f("ix_reloads_subscription_id"), "reloads", ["subscription_id"], unique=False)
    op.create_index(op.f("ix_reloads_table_id"), "reloads", ["table_id"], unique=False)
    op.create_table(
        "schema_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("change", sa.String(length=16), nullable=False),
        sa.Column("position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("columns", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("key", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"], ["tables.id"], name=op.f("fk_schema_versions_table_id_tables"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schema_versions")),
    )
    op.create_index(op.f("ix_schema_versions_table_id"), "schema_versions", ["table_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_schema_versions_table_id"), table_name="schema_versions")
    op.drop_table("schema_versions")
    op.drop_index(op.f("ix_reloads_table_id"), table_name="reloads")
    op.drop_index(op.f("ix_reloads_subscription_id"), table_name="reloads")
    op.drop_index(op.f("ix_reloads_state"), table_name="reloads")
    op.drop_index(op.f("ix_reloads_created_at"), table_name="reloads")
    op.drop_table("reloads")
    op.drop_index(op.f("ix_verifications_subscription_id"), table_name="verifications")
    op.drop_index(op.f("ix_verifications_state"), table_name="verifications")
    op.drop_index(op.f("ix_verifications_created_at"), table_name="verifications")
    op.drop_table("verifications")
    op.drop_index(
        "uq_tables_present_name",
        table_name="tables",
        sqlite_where=sa.text("state <> 'removed'"),
        postgresql_where=sa.text("state <> 'removed'"),
    )
    op.drop_index(op.f("ix_tables_subscription_id"), table_name="tables")
    op.drop_table("tables")
    op.drop_index(op.f("ix_freshness_waits_subscription_id"), table_name="freshness_waits")
    op.drop_index(op.f("ix_freshness_waits_status"), table_name="freshness_waits")
    op.drop_index(op.f("ix_freshness_waits_ended_at"), table_name="freshness_waits")
    op.drop_table("freshness_waits")
    op.drop_index(op.f("ix_batches_subscription_id"), table_name="batches")
    op.drop_table("batches")
    op.drop_index(op.f("ix_subscriptions_target_id"), table_name="subscriptions")
    op.drop_index(op.f("ix_subscriptions_source_id"), table_name="subscriptions")
    op.drop_table("subscriptions")
    op.drop_table("tokens")
    op.drop_index(op.f("ix_outbox_subscription"), table_name="outbox")
    op.drop_index(op.f("ix_outbox_delivered_at"), table_name="outbox")
    op.drop_table("outbox")
    op.drop_index(op.f("ix_idempotency_keys_created_at"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index(op.f("ix_events_subscription"), table_name="events")
    op.drop_index(op.f("ix_events_kind"), table_name="events")
    op.drop_index(op.f("ix_events_at"), table_name="events")
    op.drop_table("events")
    op.drop_table("engines")
    op.drop_table("connections")
