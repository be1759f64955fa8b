"""How much a copy has to read, how fast it goes, and since when it is waited for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.db.types import UtcDateTime

revision = "0016_copy_figures"
down_revision = "0015_health"
branch_labels = None
depends_on = None

_TABLES: tuple[tuple[str, sa.types.TypeEngine[object]], ...] = (
    ("copied_total_rows", sa.BigInteger()),
    ("copied_total_bytes", sa.BigInteger()),
    ("copied_rows_per_second", sa.Float()),
    ("copied_bytes_per_second", sa.Float()),
)
_MOMENTS = ("copied_at", "copy_asked_at")
_RELOADS: tuple[tuple[str, sa.types.TypeEngine[object]], ...] = (
    ("total_rows", sa.BigInteger()),
    ("total_bytes", sa.BigInteger()),
    ("rows_per_second", sa.Float()),
)


def upgrade() -> None:
    for name, kind in _TABLES:
        op.add_column("tables", sa.Column(name, kind, nullable=True))
    for name in _MOMENTS:
        op.add_column("tables", sa.Column(name, UtcDateTime(), nullable=True))
    for name, kind in _RELOADS:
        op.add_column("reloads", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for name, _ in _RELOADS:
        op.drop_column("reloads", name)
    for name in (*_MOMENTS, *(name for name, _ in _TABLES)):
        op.drop_column("tables", name)
