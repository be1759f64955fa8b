"""Waits that end at once where the estimate exceeds their deadline."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024_early_refusal"
down_revision = "0023_token_verifiers"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("freshness_waits") as table:
        table.add_column(sa.Column("refuse_early", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("freshness_waits") as table:
        table.drop_column("refuse_early")
