"""A relation of Arrow rows that a statement of DuckDB reads under a name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_NOTHING = pa.table({"nothing": pa.array([], pa.int64())})


class RelationOfRows:
    """Different rows, of different columns, for each statement. DuckDB asks for the columns when it plans a statement.

    It is registered once for a connection: to register rows for each statement costs as much as the statement, and what is registered in a
    transaction stays in memory until the transaction ends.
    """

    def __init__(self) -> None:
        self.rows: Any = _NOTHING

    def clear(self) -> None:
        """Forget the rows."""
        self.rows = _NOTHING

    def __arrow_c_schema__(self) -> object:
        return self.rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)
