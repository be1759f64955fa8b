"""Read points that were created, by name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import server.db.types

revision = "0028_read_points"
down_revision = "0027_snapshots"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "read_points",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("position", server.db.types.PositionText(length=64), nullable=False),
        sa.Column("committed_at", server.db.types.UtcDateTime(timezone=True), nullable=True),
        sa.Column("created_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("expires_at", server.db.types.UtcDateTime(timezone=True), nullable=False),
        sa.Column("tables", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_read_points_subscription_id_subscriptions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_read_points")),
        sa.UniqueConstraint("subscription_id", "name", name=op.f("uq_read_points_subscription_id_name")),
    )
    op.create_index(op.f("ix_read_points_subscription_id"), "read_points", ["subscription_id"], unique=False)
    op.create_index(op.f("ix_read_points_expires_at"), "read_points", ["expires_at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_read_points_expires_at"), table_name="read_points")
    op.drop_index(op.f("ix_read_points_subscription_id"), table_name="read_points")
    op.drop_table("read_points")
