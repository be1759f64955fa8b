"""Tables that were removed, and that no pattern brings back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007_kept_out"
down_revision = "0006_target_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("kept_out", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("tables", "kept_out")
