"""Events of one table: found by an index, and those that tell of its state say which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014_events_of_tables"
down_revision = "0013_history"
branch_labels = None
depends_on = None


_TOLD = ("registered", "copying", "catching_up", "live", "paused", "reloading", "removed")


def upgrade() -> None:
    op.add_column("events", sa.Column("table_state", sa.String(length=16), nullable=True))
    kinds = ", ".join(f"'table_{state}'" for state in _TOLD)
    op.execute(f"UPDATE events SET table_state = substr(kind, 7) WHERE kind IN ({kinds})")
    op.execute("UPDATE events SET table_state = 'registered' WHERE kind = 'table_added'")
    # Their kind is the fault's code.
    op.execute(
        "UPDATE events SET table_state = 'parked' WHERE severity = 'error' AND detail LIKE 'The table ''%'' is parked: %'"
    )
    op.execute("UPDATE events SET subject = substr(subject, 1, 500) WHERE length(subject) > 500")
    op.create_index(op.f("ix_events_subject_id"), "events", ["subject", "id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_events_subject_id"), table_name="events")
    op.drop_column("events", "table_state")
