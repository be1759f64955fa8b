"""What health is judged by besides states: the newest fault, and tables whose last verification found them different."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015_health"
down_revision = "0014_events_of_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("subscriptions", sa.Column("last_fault", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("tables", sa.Column("differs", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("tables", "differs")
    op.drop_column("subscriptions", "last_fault")
