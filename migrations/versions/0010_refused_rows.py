"""What becomes of rows that a target refuses, and how many stand aside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010_refused_rows"
down_revision = "0009_shared_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("refused_rows", sa.String(length=16), nullable=False, server_default="park"))
    op.add_column("tables", sa.Column("rows_set_aside", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("tables", "rows_set_aside")
    op.drop_column("tables", "refused_rows")
