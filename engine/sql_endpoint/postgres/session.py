"""One session of a client: the simple and the extended protocol, one message after another.

Nothing of a client's transaction reaches the target: each statement is a query of its own, at a batch boundary of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from engine.model.run_time_parameters import ANSWERED_BY, POSITION, RECEIPT
from engine.postgres.wire_types import TypeOid
from engine.sql_endpoint.answers import Answer, AnswerError, Answers, Client
from engine.sql_endpoint.postgres import binary_parameters, messages, types
from engine.sql_endpoint.postgres.errors import STALE_ROWS, SqlError, error_of
from engine.sql_endpoint.postgres.messages import ColumnDescription, Fields, ProtocolError
from engine.sql_endpoint.postgres.parameters import SessionParameters, check_transaction
from engine.sql_endpoint.postgres.statements import (
    Action,
    Command,
    cast_of_parameters,
    cast_parameters,
    command_of,
    parameter_count,
    split,
    unquoted,
)
from engine.sql_endpoint.postgres.values import data_rows

log = structlog.get_logger(__name__)

_DEFAULT_TIMEOUT_MS = 300_000
"""Limit of a statement's run time where the client sets none: reading an answer slowly counts too."""
_IN_FAILED_TRANSACTION = frozenset({Action.COMMIT, Action.ROLLBACK, Action.ROLLBACK_TO})
_MOST_PREPARED = 1000
"""Most prepared statements of a session: drivers keep some hundreds at most."""
_MOST_PARAMETERS = 65_535
"""Most parameters of a statement, as in the protocol."""
_ROLE_HINT = (
    "An administrator sets what its sessions begin with: penstock token configure NAME --set penstock.freshness=latest"
)
_WITH_ROWS = frozenset({Action.QUERY, Action.SHOW, Action.FETCH})


@dataclass(slots=True)
class Prepared:
    """A statement that a client has parsed."""

    command: Command
    oids: list[int]
    """Types of its parameters; 0 becomes text."""
    columns: list[ColumnDescription] | None = None
    """Columns of its answer, once they were described."""


@dataclass(slots=True)
class Portal:
    """A bound statement, or a cursor. It runs when it is first described or executed."""

    prepared: Prepared
    values: list[str | None] = field(default_factory=list)
    formats: list[int] = field(default_factory=list)
    running: Running | None = None
    done: str | None = None
    """The tag of its completion."""
    fetched: int | None = None
    """For FETCH, whose rows are those of a cursor: how many."""
    is_fetch: bool = False
    hold: bool = False
    """It outlives the transaction: a cursor WITH HOLD."""


class Running:
    """An answer whose rows are sent in parts."""

    def __init__(self, answer: Answer, tables: AsyncIterator[Any], first: Any) -> None:
        """`tables`: the rest of the answer after its `first` table."""
        self.answer = answer
        self.columns = types.describe(first.schema)
        self._tables = tables
        self._rest: Any = first

    @classmethod
    async def begun(cls, answer: Answer) -> Running:
        """With the first rows, which have the columns. Raises AnswerError."""
        tables = answer.tables()
        try:
            first = await anext(tables)
        except BaseException:
            answer.close()
            raise
        return cls(answer, tables, first)

    async def rows(self, most: int | None) -> AsyncIterator[Any]:
        """Tables of at most so many rows together."""
        left = most
        while left is None or left > 0:
            table, self._rest = self._rest, None
            if table is None:
                table = await anext(self._tables, None)
            if table is None:
                return
            if left is not None and table.num_rows > left:
                self._rest, table = table.slice(left), table.slice(0, left)
            if left is not None:
                left -= table.num_rows
            yield table

    def close(self) -> None:
        self.answer.close()


class Session:
    """The exchange with one client, after its login. `send` queues bytes, `drain` waits until the client takes them."""

    def __init__(
        self,
        answers: Answers,
        client: Client,
        values: SessionParameters,
        send: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._answers = answers
        self._client = client
        self._parameters = values
        self._send = send
        self._drain = drain
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._status = b"I"
        self._skipping = False
        self._statement: asyncio.Task[None] | None = None

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Until the client ends the session. Raises ProtocolError, and asyncio.IncompleteReadError if it goes without a word."""
        self._send(messages.ready_for_query(self._status))
        try:
            while True:
                await self._drain()
                kind, fields = await messages.read_message(reader)
                if kind == b"X":
                    return
                await self._handle(kind, fields)
        finally:
            self._close_portals(everything=True)

    def cancel(self) -> None:
        """Cancel the running statement, if one runs."""
        if self._statement is not None:
            self._statement.cancel()

    async def _handle(self, kind: bytes, fields: Fields) -> None:
        if kind == b"S":
            self._skipping = False
            self._end_of_query()
            return
        if self._skipping:
            return
        handlers: dict[bytes, Callable[[Fields], Awaitable[None]]] = {
            b"Q": self._query,
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"H": self._flush,
        }
        handler = handlers.get(kind)
        if handler is None:
            if kind in {b"d", b"c", b"f"}:  # COPY data of a client that does not wait for an error
                return
            raise ProtocolError(f"a message of an unknown kind {kind!r}")
        self._statement = asyncio.ensure_future(handler(fields))
        try:
            await self._statement
        except asyncio.CancelledError:
            if not self._statement.cancelled() or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            self._failed(SqlError("57014", "the client canceled the statement"), kind)
        except SqlError as error:
            self._failed(error, kind)
        except AnswerError as error:
            self._failed(error_of(error.problem), kind)
        finally:
            self._statement = None

    def _failed(self, error: SqlError, kind: bytes) -> None:
        self._send(messages.error_response(error.fields()))
        if self._status == b"T":
            self._status = b"E"
        if kind == b"Q":
            self._end_of_query()
        else:
            self._skipping = True

    def _end_of_query(self) -> None:
        if self._status == b"I":
            self._close_portals()
        self._send(messages.ready_for_query(self._status))

    # The simple protocol

    async def _query(self, fields: Fields) -> None:
        statements = split(fields.text())
        if not statements:
            self._send(messages.EMPTY_QUERY)
        for statement in statements:
            portal = Portal(Prepared(command_of(statement), []))
            try:
                await self._run(portal, None, described=False)
            finally:
                self._close_portal(portal)
        self._end_of_query()

    # The extended protocol

    async def _parse(self, fields: Fields) -> None:
        name, sql, oids = fields.text(), fields.text(), fields.int32s()
        statements = split(sql)
        if len(statements) > 1:
            raise SqlError("42601", "cannot insert multiple commands into a prepared statement")
        if name and name in self._prepared:
            raise SqlError("42P05", f'prepared statement "{name}" already exists')
        if len(self._prepared) >= _MOST_PREPARED:
            raise SqlError(
                "53400", f"a session has at most {_MOST_PREPARED} prepared statements", hint="DEALLOCATE ALL"
            )
        statement = statements[0] if statements else ""
        count = parameter_count(statement)
        if count > _MOST_PARAMETERS:
            raise SqlError("54000", f"a statement has at most {_MOST_PARAMETERS} parameters")
        oids += [0] * (count - len(oids))
        for number, kind in cast_of_parameters(statement).items():
            if number:
                oids[number - 1] = oids[number - 1] or types.parameter_type(kind)
        self._prepared[name] = Prepared(command_of(statement), oids)
        self._send(messages.PARSE_COMPLETE)

    async def _bind(self, fields: Fields) -> None:
        portal_name, name = fields.text(), fields.text()
        forms, values, formats = fields.int16s(), fields.values(), fields.int16s()
        prepared = self._prepared.get(name)
        if prepared is None:
            raise SqlError("26000", f'prepared statement "{name}" does not exist')
        if len(values) != len(prepared.oids):
            raise SqlError(
                "08P01",
                f"bind message supplies {len(values)} parameters, but the statement requires {len(prepared.oids)}",
            )
        if portal_name and portal_name in self._portals:
            raise SqlError("42P03", f'cursor "{portal_name}" already exists')
        forms = forms * len(values) if len(forms) == 1 else forms or [0] * len(values)
        if len(forms) != len(values):
            raise SqlError("08P01", f"bind message has {len(forms)} formats for {len(values)} parameters")
        texts = [
            binary_parameters.text_of(oid, value, binary=form == 1)
            for oid, value, form in zip(prepared.oids, values, forms, strict=True)
        ]
        old = self._portals.pop(portal_name, None)
        if old is not None:
            self._close_portal(old)
        self._portals[portal_name] = Portal(prepared, texts, formats)
        self._send(messages.BIND_COMPLETE)

    async def _describe(self, fields: Fields) -> None:
        kind, name = fields.raw(1), fields.text()
        if kind == b"P":
            portal = self._portal(name)
            if portal.prepared.command.action in _WITH_ROWS:  # others would take effect before they are executed
                await self._open(portal)
            self._send_columns(None if portal.running is None else portal.running.columns, portal)
            return
        prepared = self._prepared.get(name)
        if prepared is None:
            raise SqlError("26000", f'prepared statement "{name}" does not exist')
        if prepared.columns is None:
            prepared.columns = await self._columns_of(prepared)
        self._send(messages.parameter_description([oid or TypeOid.TEXT for oid in prepared.oids]))
        if prepared.columns is None:
            self._send(messages.NO_DATA)
        else:
            self._send(messages.row_description(prepared.columns, [0] * len(prepared.columns)))

    async def _execute(self, fields: Fields) -> None:
        name, most = fields.text(), fields.int32()
        await self._run(self._portal(name), most or None, described=True)

    async def _close(self, fields: Fields) -> None:
        kind, name = fields.raw(1), fields.text()
        if kind == b"S":
            self._prepared.pop(name, None)
        else:
            portal = self._portals.pop(name, None)
            if portal is not None:
                self._close_portal(portal)
        self._send(messages.CLOSE_COMPLETE)

    async def _flush(self, _fields: Fields) -> None:
        return

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise SqlError("34000", f'cursor "{name}" does not exist')
        return found

    # Statements

    async def _run(self, portal: Portal, most: int | None, *, described: bool) -> None:
        """Execute, and send the rows and how it completed. `described`: the client has or wants no description of the rows."""
        command = portal.prepared.command
        if command.action is Action.EMPTY:
            self._send(messages.EMPTY_QUERY)
            return
        if portal.done is not None:  # all rows were fetched before
            self._send(messages.command_complete(portal.done))
            return
        await self._open(portal)
        running = portal.running
        if running is None:
            portal.done = portal.done or command.action.value
            self._send(messages.command_complete(portal.done))
            return
        if not described:
            self._send_columns(running.columns, portal)
        await self._send_rows(portal, running, most)

    async def _send_rows(self, portal: Portal, running: Running, most: int | None) -> None:
        formats = _formats(portal.formats, len(running.columns))
        count = 0
        async for table in running.rows(portal.fetched if portal.is_fetch else most):
            self._send(data_rows(table, running.columns, formats))
            count += table.num_rows
            await self._drain()
        if most is not None and count == most and not portal.is_fetch:
            self._send(messages.PORTAL_SUSPENDED)
            return
        portal.done = f"{'FETCH' if portal.is_fetch else 'SELECT'} {count}"
        self._close_portal(portal)
        self._send(messages.command_complete(portal.done))

    async def _open(self, portal: Portal) -> None:
        """Begin to execute the statement, unless it runs or has ended."""
        command = portal.prepared.command
        if portal.running is not None or portal.done is not None or command.action is Action.EMPTY:
            return
        if self._status == b"E" and command.action not in _IN_FAILED_TRANSACTION:
            raise SqlError("25P02", "current transaction is aborted, commands ignored until end of transaction block")
        if command.action is Action.QUERY:
            portal.running = await self._asked(portal.prepared, portal.values)
            self._check_columns(portal.prepared, portal.running)
        elif command.action is Action.SHOW:
            await self._show(portal, command)
        elif command.action is Action.FETCH:
            portal.running, portal.fetched = await self._fetched(command.rest)
            portal.is_fetch = True
        else:
            portal.done = self._execute_command(command)

    async def _asked(self, prepared: Prepared, values: Sequence[str | None]) -> Running:
        command = prepared.command
        sql = _with_casts(prepared, values)
        requirement = self._parameters.requirement(command.hints)
        timeout_ms = self._parameters.statement_timeout_ms() or _DEFAULT_TIMEOUT_MS
        answer = await self._answers.ask(self._client, sql, values, requirement, timeout_ms)
        running = await Running.begun(answer)
        self._parameters.note(POSITION, answer.position)
        self._parameters.note(RECEIPT, json.dumps(answer.receipt) if answer.receipt else "")
        self._parameters.note(ANSWERED_BY, answer.answered_by)
        if answer.stale is not None:
            self._warn_of_stale_rows(answer.stale)
        return running

    def _check_columns(self, prepared: Prepared, running: Running) -> None:
        """Refuse rows of other types than the client was shown for the statement: it would misread them."""
        shown = prepared.columns
        if shown is not None and [(c.name, c.oid) for c in shown] != [(c.name, c.oid) for c in running.columns]:
            prepared.columns = None
            running.close()
            raise SqlError("0A000", "cached plan must not change result type", hint="Prepare the statement again.")

    def _warn_of_stale_rows(self, stale: dict[str, Any]) -> None:
        age = stale["seconds_behind"]
        known = "unknown" if age is None else f"{age:.3f} s"
        message = f"the rows are older than requested: they show {stale['position']}, and lag by {known}"
        self._send(messages.notice_response({"S": "WARNING", "V": "WARNING", "C": STALE_ROWS, "M": message}))

    async def _columns_of(self, prepared: Prepared) -> list[ColumnDescription] | None:
        """Columns of a statement that is not bound yet."""
        command = prepared.command
        if command.action is Action.SHOW:
            shown = self._parameters.show(command.rest)
            if shown is not None:
                return [ColumnDescription(shown[0], TypeOid.TEXT)]
        elif command.action is not Action.QUERY:
            return None
        count = len(prepared.oids)
        sql = _with_casts(prepared, [None] * count)
        answer = await self._answers.describe(self._client, sql, count, self._parameters.requirement(command.hints))
        running = await Running.begun(answer)
        running.close()
        return running.columns

    def _execute_command(self, command: Command) -> str:
        """Execute what concerns the session alone; returns the tag of completion."""
        action = command.action
        if action is Action.BEGIN:
            check_transaction(command.rest)
            if self._status == b"I":
                self._status = b"T"
                self._parameters.begin()
        elif action in {Action.COMMIT, Action.ROLLBACK}:
            return self._end_transaction(committed=action is Action.COMMIT and self._status != b"E")
        elif action is Action.ROLLBACK_TO:
            self._status = b"T"
            return "ROLLBACK"
        elif action in {Action.SET, Action.SET_LOCAL}:
            warning = self._parameters.set(command.rest, local=action is Action.SET_LOCAL)
            if warning is not None:
                self._send(messages.notice_response({"S": "WARNING", "V": "WARNING", "C": "01000", "M": warning}))
            return "SET"
        elif action is Action.RESET:
            self._parameters.reset(command.rest)
        elif action is Action.DISCARD:
            self._prepared.clear()
            self._close_portals(everything=True)
            self._parameters.reset("ALL")
            return "DISCARD ALL"
        elif action is Action.DEALLOCATE:
            self._deallocate(command.rest)
        elif action is Action.DECLARE:
            self._declare(command.rest)
            return "DECLARE CURSOR"
        elif action is Action.CLOSE:
            self._close_cursor(command.rest)
            return "CLOSE CURSOR"
        elif action is Action.ALTER_ROLE:
            raise SqlError("0A000", "a role is a token of the server; SQL does not change it", hint=_ROLE_HINT)
        return str(action.value)

    def _end_transaction(self, *, committed: bool) -> str:
        if self._status != b"I":
            self._parameters.end(committed=committed)
        self._status = b"I"
        self._close_portals()
        return "COMMIT" if committed else "ROLLBACK"

    async def _show(self, portal: Portal, command: Command) -> None:
        shown = self._parameters.show(command.rest)
        if shown is None:  # SHOW TABLES and others are statements of the target
            text = f"SHOW {command.rest}"
            portal.running = await self._asked(Prepared(Command(Action.QUERY, text, command.hints), []), ())
            return
        portal.running = await Running.begun(Answer.of_one(*shown))

    def _deallocate(self, rest: str) -> None:
        name = unquoted(rest.removeprefix("PREPARE").removeprefix("prepare"))
        if name.upper() == "ALL":
            self._prepared.clear()
        elif self._prepared.pop(name, None) is None:
            raise SqlError("26000", f'prepared statement "{name}" does not exist')

    # Cursors

    def _declare(self, rest: str) -> None:
        name, _, after = rest.partition(" ")
        options, found, query = _cut(after, "FOR")
        words = options.upper().split()
        hold = "HOLD" in words and "WITHOUT" not in words
        if not found or "CURSOR" not in words:
            raise SqlError("42601", "DECLARE is followed by a name, CURSOR FOR, and a query")
        if "SCROLL" in words and "NO" not in words:
            raise SqlError("0A000", "cursors go forward only", hint="Leave SCROLL out.")
        if self._status == b"I" and not hold:
            raise SqlError("25P01", "DECLARE CURSOR can only be used in transaction blocks")
        name = unquoted(name)
        if name in self._portals:
            raise SqlError("42P03", f'cursor "{name}" already exists')
        formats = [1] if "BINARY" in words else []
        self._portals[name] = Portal(Prepared(command_of(query), []), formats=formats, hold=hold)

    async def _fetched(self, rest: str) -> tuple[Running, int | None]:
        """The rows of a cursor, and how many of them are wanted; None: all."""
        words = [word for word in rest.split() if word.upper() not in {"FORWARD", "FROM", "IN", "NEXT"}]
        if not words:
            raise SqlError("42601", "FETCH is followed by a number or ALL, FROM, and a cursor")
        name = unquoted(words.pop())
        count = words[0].upper() if words else "1"
        cursor = self._portal(name)
        if count != "ALL" and not count.isdigit():
            raise SqlError("0A000", f"FETCH {count} is not available: cursors go forward only")
        await self._open(cursor)
        if cursor.running is None:
            raise SqlError("24000", f'cursor "{name}" has no rows')
        return cursor.running, None if count == "ALL" else int(count)

    def _close_cursor(self, name: str) -> None:
        if name.upper() == "ALL":
            self._close_portals(everything=True)
            return
        self._close_portal(self._portal(unquoted(name)))
        del self._portals[unquoted(name)]

    # Ends

    def _send_columns(self, columns: list[ColumnDescription] | None, portal: Portal) -> None:
        if columns is None:
            self._send(messages.NO_DATA)
        else:
            self._send(messages.row_description(columns, _formats(portal.formats, len(columns))))

    def _close_portal(self, portal: Portal) -> None:
        if portal.running is not None and not portal.is_fetch:
            portal.running.close()
        portal.running = None

    def _close_portals(self, *, everything: bool = False) -> None:
        for name, portal in list(self._portals.items()):
            if everything or not portal.hold:
                self._close_portal(portal)
                del self._portals[name]


def _with_casts(prepared: Prepared, values: Sequence[str | None]) -> str:
    """The statement, which casts the parameters whose types the client declared."""
    declared = enumerate(zip(prepared.oids, values, strict=True), start=1)
    casts = {number: cast for number, (oid, value) in declared if (cast := types.cast_of(oid, value)) is not None}
    return cast_parameters(prepared.command.rest, casts) if casts else prepared.command.rest


def _formats(given: Sequence[int], count: int) -> list[int]:
    """The format of each column: none given is text for all, one is for all."""
    if len(given) == count:
        return list(given)
    if len(given) <= 1:
        return [given[0] if given else 0] * count
    raise SqlError("08P01", f"bind message has {len(given)} result formats but the query has {count} columns")


def _cut(text: str, word: str) -> tuple[str, bool, str]:
    """The text before and after the first occurrence of the word."""
    upper = f" {text.upper()} "
    at = upper.replace("\n", " ").replace("\t", " ").find(f" {word} ")
    return (text, False, "") if at < 0 else (text[:at], True, text[at + len(word) :].strip())
