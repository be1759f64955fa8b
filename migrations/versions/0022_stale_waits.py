"""Waits that at their deadline say how far the target is behind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022_stale_waits"
down_revision = "0021_masks_of_columns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("freshness_waits") as table:
        table.add_column(sa.Column("stale", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("freshness_waits") as table:
        table.drop_column("stale")
