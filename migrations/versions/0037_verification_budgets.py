"""The share of the time in which a verification may compare."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037_verification_budgets"
down_revision = "0036_verification_samples"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("verifications", sa.Column("budget", sa.Float(), nullable=False, server_default="1"))


def downgrade() -> None:
    op.drop_column("verifications", "budget")
