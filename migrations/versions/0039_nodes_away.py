"""Nodes of a subscription's source that cannot be read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039_nodes_away"
down_revision = "0038_staging_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("subscriptions", sa.Column("nodes_away", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("subscriptions", "nodes_away")
