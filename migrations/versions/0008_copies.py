"""How fast a subscription's tables are copied, and in which order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008_copies"
down_revision = "0007_kept_out"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("subscriptions") as subscriptions:
        subscriptions.add_column(sa.Column("copies", sa.JSON(none_as_null=True), nullable=False, server_default="{}"))


def downgrade() -> None:
    # Not in a batch: on SQLite that makes the table anew, and what hangs on its rows would go with the old one.
    op.drop_column("subscriptions", "copies")
    op.drop_column("tables", "priority")
