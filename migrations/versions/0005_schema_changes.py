"""What a subscription does about changes of structure, and what is known of each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_schema_changes"
down_revision = "0004_into_existing"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("subscriptions") as subscriptions:
        subscriptions.add_column(
            sa.Column("schema_changes", sa.JSON(none_as_null=True), nullable=False, server_default="{}")
        )
    with op.batch_alter_table("schema_versions") as versions:
        versions.add_column(sa.Column("changes", sa.JSON(none_as_null=True), nullable=True))
        versions.add_column(sa.Column("learnt", sa.String(length=16), nullable=True))
        versions.add_column(sa.Column("certain", sa.Boolean(), nullable=True))


def downgrade() -> None:
    # Not in a batch: on SQLite that makes the table anew, and what hangs on its rows would go with the old one.
    for column in ("certain", "learnt", "changes"):
        op.drop_column("schema_versions", column)
    op.drop_column("subscriptions", "schema_changes")
