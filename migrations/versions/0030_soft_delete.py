"""Tables whose deleted rows stay on the target."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030_soft_delete"
down_revision = "0029_freshness_goals"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("deletes", sa.String(length=16), nullable=False, server_default="delete"))


def downgrade() -> None:
    op.drop_column("tables", "deletes")
