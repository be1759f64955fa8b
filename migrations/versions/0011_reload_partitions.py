"""Reloads of some partitions of a table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011_reload_partitions"
down_revision = "0010_refused_rows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("asked", "partitions"):
        op.add_column("reloads", sa.Column(name, sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    for name in ("partitions", "asked"):
        op.drop_column("reloads", name)
