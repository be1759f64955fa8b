"""Freshness goals: those of tables, what is measured, and the hours of which something was measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0029_freshness_goals"
down_revision = "0028_read_points"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "freshness_goals",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("table_id", sa.String(length=16), nullable=False),
        sa.Column("lag_seconds", sa.Float(), nullable=False),
        sa.Column("count_pauses", sa.Boolean(), nullable=False),
        sa.Column("since", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("late_since", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("alarms", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_freshness_goals_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_freshness_goals")),
        sa.UniqueConstraint("subscription_id", "table_id", name=op.f("uq_freshness_goals_subscription_id_table_id")),
    )
    op.create_index(op.f("ix_freshness_goals_subscription_id"), "freshness_goals", ["subscription_id"], unique=False)
    op.create_table(
        "freshness_hours",
        sa.Column("goal_id", sa.Integer(), nullable=False),
        sa.Column("at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("totals", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("minutes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("worst", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["goal_id"],
            ["freshness_goals.id"],
            name=op.f("fk_freshness_hours_goal_id_freshness_goals"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("goal_id", "at", name=op.f("pk_freshness_hours")),
    )
    op.add_column("tables", sa.Column("freshness", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("tables", "freshness")
    op.drop_table("freshness_hours")
    op.drop_index(op.f("ix_freshness_goals_subscription_id"), table_name="freshness_goals")
    op.drop_table("freshness_goals")
