"""Positions of waits as text of any length: a source with several logs names one in each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018_wait_positions"
down_revision = "0017_waits"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("freshness_waits") as table:
        for column in ("asked", "position"):
            table.alter_column(column, existing_type=sa.String(64), type_=sa.Text(), existing_nullable=True)


def downgrade() -> None:
    with op.batch_alter_table("freshness_waits") as table:
        for column in ("asked", "position"):
            table.alter_column(column, existing_type=sa.Text(), type_=sa.String(64), existing_nullable=True)
