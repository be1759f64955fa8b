"""How each batch was written to the target."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_batch_mode"
down_revision = "0002_batch_tuning"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("batches") as batches:
        batches.add_column(sa.Column("mode", sa.String(length=16), nullable=False, server_default="batch"))


def downgrade() -> None:
    # SQLite makes the table anew for it, and must be told what it does not find in the old one.
    with op.batch_alter_table("batches", table_kwargs={"sqlite_autoincrement": True}) as batches:
        batches.drop_column("mode")
