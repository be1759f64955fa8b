"""The share of each table that a verification compares, and when a table was last compared as a whole."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.db.types import UtcDateTime

revision = "0036_verification_samples"
down_revision = "0035_verification_repairs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("verifications", sa.Column("sample", sa.Float(), nullable=False, server_default="1"))
    op.add_column("tables", sa.Column("verified_sample", sa.Float(), nullable=False, server_default="1"))
    op.add_column("tables", sa.Column("verified_whole_at", UtcDateTime(), nullable=True))
    op.execute("UPDATE tables SET verified_whole_at = verified_at")


def downgrade() -> None:
    op.drop_column("tables", "verified_whole_at")
    op.drop_column("tables", "verified_sample")
    op.drop_column("verifications", "sample")
