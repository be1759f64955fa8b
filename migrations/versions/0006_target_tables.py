"""What became of the table on the target of one that was removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006_target_tables"
down_revision = "0005_schema_changes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("target_table", sa.String(length=16), nullable=True))


def downgrade() -> None:
    op.drop_column("tables", "target_table")
