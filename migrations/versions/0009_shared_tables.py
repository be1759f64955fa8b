"""The shared table that shows a table's rows together with those of others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009_shared_tables"
down_revision = "0008_copies"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("shared_into", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("tables", "shared_into")
