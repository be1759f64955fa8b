"""What is replicated in place of columns' values."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021_masks_of_columns"
down_revision = "0020_names_of_columns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("mask", sa.JSON(none_as_null=True), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("tables", "mask")
