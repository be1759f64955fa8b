"""Run-time parameters with which the sessions of a token begin."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031_token_settings"
down_revision = "0030_soft_delete"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("settings", sa.JSON(none_as_null=True), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("tokens", "settings")
