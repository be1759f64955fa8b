"""Tables whose row versions are kept on the target."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032_table_history"
down_revision = "0031_token_settings"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("history", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("tables", "history")
