"""Tickets: markers put into a source's log, timed on their way to the target."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0012_tickets"
down_revision = "0011_reload_partitions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tickets",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("position", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("until", server.db.types.PositionText(length=64), nullable=True),
        sa.Column("written_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("captured_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("sealed_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("computed_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("applied_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("transactions", sa.BigInteger(), nullable=True),
        sa.Column("commands", sa.BigInteger(), nullable=True),
        sa.Column("counted_since", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("remedy", sa.String(), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_tickets_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tickets")),
    )
    for column in ("created_at", "state", "subscription_id"):
        op.create_index(op.f(f"ix_tickets_{column}"), "tickets", [column], unique=False)


def downgrade() -> None:
    for column in ("subscription_id", "state", "created_at"):
        op.drop_index(op.f(f"ix_tickets_{column}"), table_name="tickets")
    op.drop_table("tickets")
