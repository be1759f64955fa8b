"""Whether a verification repairs the rows that differ."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035_verification_repairs"
down_revision = "0034_verification_method"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("verifications", sa.Column("repair", sa.String(16), nullable=False, server_default="none"))


def downgrade() -> None:
    op.drop_column("verifications", "repair")
