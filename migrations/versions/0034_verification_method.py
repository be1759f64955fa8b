"""How a verification compares tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034_verification_method"
down_revision = "0033_scheduled_verifications"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("verifications", sa.Column("method", sa.String(16), nullable=False, server_default="rows"))


def downgrade() -> None:
    op.drop_column("verifications", "method")
