"""History: what subscriptions did, step by step; and the goal that their freshness is judged by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0013_history"
down_revision = "0012_tickets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "history",
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("step_seconds", sa.Integer(), nullable=False),
        sa.Column("at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("figures", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_history_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("subscription_id", "step_seconds", "at", name=op.f("pk_history")),
    )
    with op.batch_alter_table("subscriptions") as subscriptions:
        subscriptions.add_column(
            sa.Column("freshness", sa.JSON(none_as_null=True), nullable=False, server_default="{}")
        )


def downgrade() -> None:
    # Not in a batch: on SQLite that makes the table anew, and what hangs on its rows would go with the old one.
    op.drop_column("subscriptions", "freshness")
    op.drop_table("history")
