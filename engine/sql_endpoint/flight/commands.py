"""Commands, tickets and actions of Flight SQL (`FlightSql.proto`, `Flight.proto`), decoded and encoded. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.sql_endpoint.flight.protobuf import Fields, MalformedMessageError, encoded, packed_any, unpacked_any

_PACKAGE = "arrow.flight.protocol.sql."


@dataclass(frozen=True, slots=True)
class StatementQuery:
    """CommandStatementQuery."""

    sql: str


@dataclass(frozen=True, slots=True)
class StatementTicket:
    """TicketStatementQuery: a statement that runs."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """CommandPreparedStatementQuery."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class GetSqlInfo:
    """CommandGetSqlInfo. `infos`: the codes that are wanted; none: all."""

    infos: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GetCatalogs:
    """CommandGetCatalogs."""


@dataclass(frozen=True, slots=True)
class GetDbSchemas:
    """CommandGetDbSchemas. Patterns are those of LIKE."""

    catalog: str | None
    schema_pattern: str | None


@dataclass(frozen=True, slots=True)
class GetTables:
    """CommandGetTables. Patterns are those of LIKE; `types`: none: all."""

    catalog: str | None
    schema_pattern: str | None
    table_pattern: str | None
    types: tuple[str, ...]
    include_schema: bool


@dataclass(frozen=True, slots=True)
class GetTableTypes:
    """CommandGetTableTypes."""


@dataclass(frozen=True, slots=True)
class GetPrimaryKeys:
    """CommandGetPrimaryKeys. `table` is a name, not a pattern."""

    catalog: str | None
    schema: str | None
    table: str


@dataclass(frozen=True, slots=True)
class GetForeignKeys:
    """The commands for keys that refer to other tables, of which copies have none."""


@dataclass(frozen=True, slots=True)
class Update:
    """A command that would write."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A command of Flight SQL that this endpoint does not have."""

    name: str


Metadata = GetSqlInfo | GetCatalogs | GetDbSchemas | GetTables | GetTableTypes | GetPrimaryKeys | GetForeignKeys
Command = StatementQuery | StatementTicket | PreparedQuery | Metadata | Update | Unknown


def command_of(message: bytes) -> Command:
    """The command of a descriptor or ticket. Raises MalformedMessageError.

    Text that is no message is a statement, so that plain Flight clients need no messages.
    """
    try:
        name, body = unpacked_any(message)
    except MalformedMessageError:
        return StatementQuery(_sql(message))
    return _command(name.removeprefix(_PACKAGE), Fields(body))


def _sql(message: bytes) -> str:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or not text.lstrip()[0].isprintable():
        raise MalformedMessageError("neither a command of Flight SQL nor a statement in UTF-8")
    return text


def _command(name: str, fields: Fields) -> Command:
    match name:
        case "CommandStatementQuery":
            return StatementQuery(fields.text(1))
        case "TicketStatementQuery":
            return StatementTicket(fields.raw(1))
        case "CommandPreparedStatementQuery":
            return PreparedQuery(fields.raw(1))
        case "CommandGetSqlInfo":
            return GetSqlInfo(tuple(fields.integers(1)))
        case "CommandGetCatalogs":
            return GetCatalogs()
        case "CommandGetDbSchemas":
            return GetDbSchemas(fields.optional_text(1), fields.optional_text(2))
        case "CommandGetTables":
            patterns = (fields.optional_text(1), fields.optional_text(2), fields.optional_text(3))
            return GetTables(*patterns, tuple(fields.texts(4)), fields.flag(5))
        case "CommandGetTableTypes":
            return GetTableTypes()
        case "CommandGetPrimaryKeys":
            return GetPrimaryKeys(fields.optional_text(1), fields.optional_text(2), fields.text(3))
        case "CommandGetExportedKeys" | "CommandGetImportedKeys" | "CommandGetCrossReference":
            return GetForeignKeys()
        case "CommandStatementUpdate" | "CommandPreparedStatementUpdate" | "CommandStatementIngest":
            return Update()
        case _:
            return Unknown(name)


def statement_ticket(handle: bytes) -> bytes:
    """TicketStatementQuery."""
    return packed_any(_PACKAGE + "TicketStatementQuery", encoded({1: handle}))


def action_body(message: bytes, name: str) -> Fields:
    """The message of an action. Raises MalformedMessageError if it is another one."""
    found, body = unpacked_any(message)
    if found != _PACKAGE + name:
        raise MalformedMessageError(f"the action needs {name}, not {found}")
    return Fields(body)


def prepared_result(handle: bytes, dataset_schema: bytes, parameter_schema: bytes) -> bytes:
    """ActionCreatePreparedStatementResult; the schemas as Arrow IPC messages."""
    fields: dict[int, int | bytes] = {1: handle, 2: dataset_schema, 3: parameter_schema}
    return packed_any(_PACKAGE + "ActionCreatePreparedStatementResult", encoded(fields))


def bound_result(handle: bytes) -> bytes:
    """DoPutPreparedStatementResult."""
    return encoded({1: handle})


def cancel_query_result(*, cancelled: bool) -> bytes:
    """ActionCancelQueryResult."""
    return packed_any(_PACKAGE + "ActionCancelQueryResult", encoded({1: _status(cancelled)}))


def cancel_flight_info_result(*, cancelled: bool) -> bytes:
    """CancelFlightInfoResult."""
    return encoded({1: _status(cancelled)})


def _status(cancelled: bool) -> int:
    """CANCELLED, or NOT_CANCELLABLE."""
    return 1 if cancelled else 3


def flight_info_of(request: bytes) -> bytes:
    """The FlightInfo of a CancelFlightInfoRequest. Raises MalformedMessageError."""
    return Fields(request).raw(1)


def tickets_of(flight_info: bytes) -> list[bytes]:
    """The tickets of a FlightInfo message. Raises MalformedMessageError."""
    # FlightInfo.endpoint is field 3, FlightEndpoint.ticket field 1, Ticket.ticket field 1.
    return [Fields(Fields(endpoint).raw(1)).raw(1) for endpoint in Fields(flight_info).raws(3)]
