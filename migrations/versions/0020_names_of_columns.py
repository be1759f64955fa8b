"""Names of columns on the target."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020_names_of_columns"
down_revision = "0019_columns_of_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("rename", sa.JSON(none_as_null=True), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("tables", "rename")
