"""Whether a table's rows go into one that stands on the target already."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_into_existing"
down_revision = "0003_batch_mode"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tables") as tables:
        tables.add_column(sa.Column("into_existing", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("tables") as tables:
        tables.drop_column("into_existing")
