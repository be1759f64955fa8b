"""Snapshots of copies as files, and their schedules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0027_snapshots"
down_revision = "0026_alerts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("scheduled", sa.Boolean(), nullable=False),
        sa.Column("asked", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("leave_out", sa.Boolean(), nullable=False),
        sa.Column("latest", sa.Boolean(), nullable=False),
        sa.Column("limit_s", sa.Integer(), nullable=False),
        sa.Column("at_least", server.db.types.PositionText(), nullable=True),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("folder", sa.String(), nullable=True),
        sa.Column("position", server.db.types.PositionText(), nullable=True),
        sa.Column("commit_time", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("tables", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("left_out", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("receipt", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("problem", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("ended_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        _of_subscription("snapshots"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshots")),
    )
    for column in ("subscription_id", "state", "created_at"):
        op.create_index(op.f(f"ix_snapshots_{column}"), "snapshots", [column], unique=False)
    op.create_table(
        "snapshot_schedules",
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("interval_s", sa.Integer(), nullable=False),
        sa.Column("keep", sa.Integer(), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("asked", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("leave_out", sa.Boolean(), nullable=False),
        sa.Column("limit_s", sa.Integer(), nullable=False),
        sa.Column("next_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        _of_subscription("snapshot_schedules"),
        sa.PrimaryKeyConstraint("subscription_id", name=op.f("pk_snapshot_schedules")),
    )
    op.create_index(op.f("ix_snapshot_schedules_next_at"), "snapshot_schedules", ["next_at"], unique=False)


def _of_subscription(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_subscription_id_subscriptions")
    return sa.ForeignKeyConstraint(["subscription_id"], ["subscriptions.id"], name=name, ondelete="CASCADE")


def downgrade() -> None:
    op.drop_index(op.f("ix_snapshot_schedules_next_at"), table_name="snapshot_schedules")
    op.drop_table("snapshot_schedules")
    for column in ("created_at", "state", "subscription_id"):
        op.drop_index(op.f(f"ix_snapshots_{column}"), table_name="snapshots")
    op.drop_table("snapshots")
