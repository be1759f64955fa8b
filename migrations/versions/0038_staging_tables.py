"""Subscriptions whose changes are kept in staging tables on the target."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038_staging_tables"
down_revision = "0037_verification_budgets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("subscriptions", "tables"):
        op.add_column(table, sa.Column("staging", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    for table in ("tables", "subscriptions"):
        op.drop_column(table, "staging")
