"""Waits that go on where engine or source are gone, and tables that a verification left out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017_waits"
down_revision = "0016_copy_figures"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("freshness_waits", sa.Column("patient", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("verifications", sa.Column("left_out", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("verifications", "left_out")
    op.drop_column("freshness_waits", "patient")
