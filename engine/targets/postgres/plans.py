"""How statements find the rows they change: one by one through the key's index, whatever the server knows of the tables."""

from __future__ import annotations

FIND_BY_KEY = (
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    # The price by which servers before 18 avoid the ways that are off would make any plan look worth compiling.
    " SET jit = off"
)
"""For a session. A fresh temporary table looks small to the planner or large, and the hash join it comes to reads the whole target
table: with staged rows in the order of the key the index takes a third of that for 30,000 rows of two million, and no longer for
all of them."""
JOIN_WHOLE_ROWS = "SET LOCAL enable_hashjoin = on"
"""For a transaction in which rows are told apart by all their columns, for which there is no index."""
