"""What was chosen for each batch, and what decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_batch_tuning"
down_revision = "0001_initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("batches") as batches:
        batches.add_column(sa.Column("tuning", sa.JSON(none_as_null=True), nullable=False, server_default="{}"))


def downgrade() -> None:
    with op.batch_alter_table("batches") as batches:
        batches.drop_column("tuning")
