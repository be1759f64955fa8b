"""Alerts: channels, the causes of which a channel was notified, and notices that are not delivered yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0026_alerts"
down_revision = "0025_batch_ledger"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alert_channels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("causes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("subscriptions", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("repeat_seconds", sa.Integer(), nullable=False),
        sa.Column("secret_names", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("secrets_sealed", sa.String(), nullable=True),
        sa.Column("delivered_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("updated_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_channels")),
        sa.UniqueConstraint("name", name=op.f("uq_alert_channels_name")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("channel_id", sa.Integer(), nullable=False),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("subscription", sa.String(length=63), nullable=False),
        sa.Column("subject", sa.String(length=16), nullable=False),
        sa.Column("table_name", sa.String(), nullable=True),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("since", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("notified_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("over_since", server.db.types.UtcDateTime(timezone=True), nullable=True),
        _of_channel("alerts"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint(
            "channel_id",
            "cause",
            "subscription",
            "subject",
            name=op.f("uq_alerts_channel_id_cause_subscription_subject"),
        ),
    )
    op.create_table(
        "alert_deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("channel_id", sa.Integer(), nullable=False),
        sa.Column("notice", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        _of_channel("alert_deliveries"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_deliveries")),
        sqlite_autoincrement=True,
    )
    for table in ("alerts", "alert_deliveries"):
        op.create_index(op.f(f"ix_{table}_channel_id"), table, ["channel_id"], unique=False)


def _of_channel(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_channel_id_alert_channels")
    return sa.ForeignKeyConstraint(["channel_id"], ["alert_channels.id"], name=name, ondelete="CASCADE")


def downgrade() -> None:
    for table in ("alert_deliveries", "alerts"):
        op.drop_index(op.f(f"ix_{table}_channel_id"), table_name=table)
        op.drop_table(table)
    op.drop_table("alert_channels")
