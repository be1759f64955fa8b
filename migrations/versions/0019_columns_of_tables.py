"""Which columns of a table are replicated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019_columns_of_tables"
down_revision = "0018_wait_positions"
branch_labels = None
depends_on = None

_COLUMNS = ("include_columns", "exclude_columns")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("tables", sa.Column(name, sa.JSON(none_as_null=True), nullable=False, server_default="[]"))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("tables", name)
