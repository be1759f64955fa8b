"""The outcome of each captured change of a batch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025_batch_ledger"
down_revision = "0024_early_refusal"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("ledger", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("batches", "ledger")
