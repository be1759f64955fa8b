"""The SCRAM verifier of a token, for logins of the SQL endpoint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023_token_verifiers"
down_revision = "0022_stale_waits"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tokens") as table:
        table.add_column(sa.Column("scram", sa.String(255), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tokens") as table:
        table.drop_column("scram")
