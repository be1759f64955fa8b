"""Sessions of a PostgreSQL source, and the fault kind for each SQLSTATE on a source."""

from __future__ import annotations

from engine.model.fault import FaultKind
from engine.model.subscription import ConnectionSpec
from engine.postgres.sessions import Sessions, StateKinds

_K = FaultKind
SOURCE = StateKinds(
    _K.SOURCE_UNREACHABLE,
    {
        "28000": _K.SOURCE_AUTHENTICATION,
        "28P01": _K.SOURCE_AUTHENTICATION,
        "42501": _K.SOURCE_PRIVILEGE,
        "53400": _K.SOURCE_NO_SLOTS,
        "55006": _K.SLOT_IN_USE,
        "57014": _K.SOURCE_TIMEOUT,
        "55P03": _K.SOURCE_TIMEOUT,
        "25P03": _K.SOURCE_TIMEOUT,
        "25P04": _K.SOURCE_TIMEOUT,
        "40001": _K.SOURCE_TIMEOUT,
        "40P01": _K.SOURCE_TIMEOUT,
        "42P01": _K.TABLE_MISSING,
        "3F000": _K.TABLE_MISSING,
        "3D000": _K.SOURCE_UNREACHABLE,
        "25006": _K.SOURCE_PRIVILEGE,
    },
)


class Connector(Sessions):
    """Sessions of one source. They set `row_security = off`, so that reading a table with rows hidden by row-level security is an error:
    a copy without those rows would be incomplete without notice. Transactions see what was committed before each statement, whatever the
    role's default is."""

    def __init__(self, spec: ConnectionSpec) -> None:
        super().__init__(spec, SOURCE, {"row_security": "off", "default_transaction_isolation": "read\\ committed"})
