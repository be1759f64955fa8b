"""Verifications on a schedule, and the last comparison of each table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.db.types import PositionText, UtcDateTime

revision = "0033_scheduled_verifications"
down_revision = "0032_table_history"
branch_labels = None
depends_on = None

_OF_TABLES = {
    "verified_at": UtcDateTime(),
    "verified_position": PositionText(),
    "verified_method": sa.String(length=16),
    "verified_equal": sa.Boolean(),
    "verified_source_rows": sa.BigInteger(),
    "verified_target_rows": sa.BigInteger(),
    "verified_by": sa.String(length=40),
    "reloaded_at": UtcDateTime(),
    "verify_tried_at": UtcDateTime(),
    "verify_retry_at": UtcDateTime(),
    "verify_problem": sa.JSON(none_as_null=True),
}


def upgrade() -> None:
    op.add_column("subscriptions", sa.Column("verify", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("verifications", sa.Column("scheduled", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("verifications", sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("verifications", sa.Column("seconds", sa.Float(), nullable=True))
    op.add_column("tables", sa.Column("verify_failures", sa.Integer(), nullable=False, server_default="0"))
    for name, kind in _OF_TABLES.items():
        op.add_column("tables", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for name in ("verify_failures", *_OF_TABLES):
        op.drop_column("tables", name)
    for name in ("scheduled", "epoch", "seconds"):
        op.drop_column("verifications", name)
    op.drop_column("subscriptions", "verify")
