"""Settings that make statements find the rows to change by the key's index, whatever statistics the server has."""

from __future__ import annotations

FIND_BY_KEY = (
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    # Servers before 18 penalize disabled plan types by a cost so large that any plan would seem worth JIT compilation.
    " SET jit = off"
)
"""For a session. The planner misjudges the size of a new temporary table, and the resulting hash join reads the whole target table.
With staged rows in key order, the index takes a third of that time for 30,000 rows of two million, and no longer for all of them."""
JOIN_WHOLE_ROWS = "SET LOCAL enable_hashjoin = on"
"""For a transaction in which rows are identified by all their columns, for which there is no index."""
