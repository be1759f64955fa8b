"""The Flight SQL server: each call of a client in a thread of gRPC, on what the endpoint's event loop asks the server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa
import structlog
from pyarrow import flight

from engine.model.run_time_parameters import FRESHNESS, ON_TIMEOUT, ON_UNAVAILABLE, READ_POINT, TIMEOUT_MS
from engine.sql_endpoint.answers import Answer, AnswerError, Answers, Client
from engine.sql_endpoint.flight import commands, metadata, parameters
from engine.sql_endpoint.flight.commands import PreparedQuery, StatementQuery, StatementTicket
from engine.sql_endpoint.flight.errors import INTERNAL, error_of, refused
from engine.sql_endpoint.flight.kept import KeptRows, Prepared, PreparedStatements, Running
from engine.sql_endpoint.flight.logins import Caller, CallerFactory, HeaderLogin, Logins
from engine.sql_endpoint.flight.protobuf import MalformedMessageError
from engine.sql_endpoint.flight.rows import IsGone, Rows
from engine.sql_endpoint.postgres.errors import SqlError
from engine.sql_endpoint.postgres.parameters import SessionParameters
from engine.sql_endpoint.postgres.statements import parameter_count
from engine.sql_endpoint.server_api import Login, ServerApi

log = structlog.get_logger(__name__)

_POLL_S = 0.2
"""Seconds after which a call that waits for the server looks whether its client is gone."""
_TIMEOUT_MS = 300_000
"""Limit of a statement's run time: fetching its rows slowly counts too."""
_NO_WAIT = {"freshness": {"mode": "any", "timeout_ms": 0}}
_SUBSCRIPTION_HEADERS = ("penstock-subscription", "database", "catalog")
_SETTING_HEADERS = {
    "penstock-freshness": FRESHNESS,
    "penstock-timeout-ms": TIMEOUT_MS,
    "penstock-on-timeout": ON_TIMEOUT,
    "penstock-on-unavailable": ON_UNAVAILABLE,
    "penstock-read-point": READ_POINT,
}
_ACTIONS = (
    ("CreatePreparedStatement", "Prepare a statement."),
    ("ClosePreparedStatement", "Close a prepared statement."),
    ("CancelQuery", "Cancel a statement whose rows were not fetched yet."),
    ("CancelFlightInfo", "Cancel a statement whose rows were not fetched yet."),
)
_READ_ONLY = ("read_only", "the copies are read-only", "Write to the source.")

Result = TypeVar("Result")
Call = TypeVar("Call", bound=Callable[..., Any])


def _safely(call: Call) -> Call:
    """A decorator: all errors are those of Flight. Of others, clients would get the traceback, and texts that may hold values."""

    @functools.wraps(call)
    def safe(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (flight.FlightError, StopIteration):
            raise
        except Exception as error:
            log.error("flight_call_failed", call=call.__name__, error=type(error).__name__)
            raise refused(INTERNAL, "the endpoint failed", "See its log.") from None

    return cast("Call", safe)


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves clients as soon as it is made. One for a process."""

    def __init__(
        self,
        server: ServerApi,
        answers: Answers,
        address: tuple[str, int],
        tls: tuple[Path, Path | None] | None,
        most: int,
    ) -> None:
        """To be called in the event loop of `server` and `answers`. `tls`: certificate chain, and key if that is another file; `most`:
        statements whose rows wait for their client.

        Raises OSError or pyarrow.ArrowException if the address or the certificate cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._answers = answers
        self._kept = KeptRows(most, self._later)
        self._prepared = PreparedStatements()
        logins = Logins(lambda digest: self._result(_login(server, digest), _never))
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        super().__init__(
            f"grpc{'+tls' if tls else '+tcp'}://{host}:{address[1]}",
            auth_handler=HeaderLogin(),
            tls_certificates=_certificates(tls) if tls else None,
            middleware={CallerFactory.NAME: CallerFactory(logins)},
        )

    @_safely
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Run a statement; its rows are fetched with the ticket."""
        command = _decoded(descriptor.command)
        if isinstance(command, commands.Metadata):
            return _info(metadata.schema_of(command), descriptor, descriptor.command)
        caller = _caller(context)
        sql, values = self._statement(caller, command)
        running = self._run(context, caller, sql, values)
        handle = self._kept.keep(caller.identity, running)
        said = _said(running.answer)
        _add_headers(context, said)
        return _info(running.rows.schema, descriptor, commands.statement_ticket(handle), json.dumps(said))

    @_safely
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The columns of a statement, which is not executed."""
        command = _decoded(descriptor.command)
        if isinstance(command, commands.Metadata):
            return flight.SchemaResult(metadata.schema_of(command))
        caller = _caller(context)
        if isinstance(command, PreparedQuery):
            return flight.SchemaResult(self._prepared.find(caller.identity, command.handle).schema)
        sql, _ = self._statement(caller, command)
        return flight.SchemaResult(self._described(context, caller, sql))

    @_safely
    def do_get(self, context: Any, ticket: Any) -> Any:
        """The rows of a statement, once; or of a metadata command."""
        caller = _caller(context)
        command = _decoded(ticket.ticket)
        if isinstance(command, commands.Metadata):
            return flight.RecordBatchStream(self._metadata(context, caller, command))
        if not isinstance(command, StatementTicket):
            raise refused("invalid_request", "the ticket is not one of get_flight_info")
        running = self._kept.take(caller.identity, command.handle)
        if running is None:
            detail = "there is no such ticket: it was used, cancelled, or kept for a minute without being used"
            raise refused("not_found", detail, "Execute the statement again.")
        return flight.GeneratorStream(running.rows.schema, _Batches(running.rows, context.is_cancelled))

    @_safely
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Bind the parameters of a prepared statement."""
        command = _decoded(descriptor.command)
        if not isinstance(command, PreparedQuery):
            raise refused(*_READ_ONLY)
        prepared = self._prepared.find(_caller(context).identity, command.handle)
        try:
            prepared.parameters = parameters.texts_of((chunk.data for chunk in reader), prepared.count)
        except flight.FlightError:
            raise
        except pa.ArrowException:
            raise refused("invalid_request", "the parameters are not rows of Arrow") from None
        writer.write(commands.bound_result(command.handle))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        del context
        return list(_ACTIONS)

    @_safely
    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Returns the bodies of the results."""
        caller = _caller(context)
        body = action.body.to_pybytes()
        try:
            match action.type:
                case "CreatePreparedStatement":
                    return iter([self._prepare(context, caller, body)])
                case "ClosePreparedStatement":
                    fields = commands.action_body(body, "ActionClosePreparedStatementRequest")
                    self._prepared.remove(caller.identity, fields.raw(1))
                    return iter([])
                case "CancelQuery":
                    info = commands.action_body(body, "ActionCancelQueryRequest").raw(1)
                    return iter([commands.cancel_query_result(cancelled=self._cancel(caller, info))])
                case "CancelFlightInfo":
                    info = commands.flight_info_of(body)
                    return iter([commands.cancel_flight_info_result(cancelled=self._cancel(caller, info))])
        except MalformedMessageError as error:
            raise refused("invalid_request", str(error)) from None
        raise refused("not_supported_yet", f"there is no action {action.type}")

    def _statement(self, caller: Caller, command: commands.Command) -> tuple[str, list[str | None]]:
        """Text and parameters of what is to be executed."""
        if isinstance(command, StatementQuery):
            return command.sql, []
        if isinstance(command, PreparedQuery):
            prepared = self._prepared.find(caller.identity, command.handle)
            if prepared.count and prepared.parameters is None:
                raise refused(
                    "invalid_request", "no parameters are bound", "Bind them before the statement is executed."
                )
            return prepared.sql, list(prepared.parameters or ())
        if isinstance(command, commands.Update):
            raise refused(*_READ_ONLY)
        name = command.name if isinstance(command, commands.Unknown) else type(command).__name__
        raise refused("not_supported_yet", f"the command {name} is not available here")

    def _run(self, context: Any, caller: Caller, sql: str, values: list[str | None]) -> Running:
        client, (requirement, timeout_ms) = Client(_subscription(caller.headers)), _limits(caller)
        asking = self._answers.ask(client, sql, values, requirement, timeout_ms, pipe=True)
        answer = self._answer(asking, context.is_cancelled)
        return Running(answer, Rows(answer, context.is_cancelled))

    def _described(self, context: Any, caller: Caller, sql: str) -> Any:
        client, (requirement, _) = Client(_subscription(caller.headers)), _limits(caller)
        asking = self._answers.describe(client, sql, parameter_count(sql), requirement)
        rows = Rows(self._answer(asking, context.is_cancelled), context.is_cancelled)
        rows.close()
        return rows.schema

    def _prepare(self, context: Any, caller: Caller, body: bytes) -> bytes:
        sql = commands.action_body(body, "ActionCreatePreparedStatementRequest").text(1)
        schema, count = self._described(context, caller, sql), parameter_count(sql)
        handle = self._prepared.add(caller.identity, Prepared(sql, schema, count))
        # The target finds the types of parameters only as it executes the statement: they are like literals without a type.
        asked = pa.schema([(f"${i + 1}", pa.string()) for i in range(count)])
        return commands.prepared_result(handle, schema.serialize().to_pybytes(), asked.serialize().to_pybytes())

    def _cancel(self, caller: Caller, flight_info: bytes) -> bool:
        """End a statement whose rows were not fetched; whether it was one."""
        found = False
        for ticket in commands.tickets_of(flight_info):
            command = _decoded(ticket)
            if isinstance(command, StatementTicket):
                running = self._kept.take(caller.identity, command.handle)
                if running is not None:
                    running.rows.close()
                    found = True
        return found

    def _metadata(self, context: Any, caller: Caller, command: commands.Metadata) -> Any:
        def select(sql: str, user: str | None = None) -> Any:
            client = Client(_subscription(caller.headers), user)
            asking = self._answers.ask(client, sql, (), _NO_WAIT, _TIMEOUT_MS)
            rows = Rows(self._answer(asking, context.is_cancelled), context.is_cancelled)
            with contextlib.closing(rows):
                return pa.Table.from_batches(rows.batches(context.is_cancelled), rows.schema)

        def select_as_postgres(sql: str) -> Any:
            return select(sql, caller.user)

        return metadata.rows_of(command, select, select_as_postgres, lambda sql: self._described(context, caller, sql))

    def _answer(self, asking: Coroutine[Any, Any, Answer], is_gone: IsGone) -> Answer:
        """Raises a Flight error."""
        try:
            return self._result(asking, is_gone, Answer.close)
        except AnswerError as error:
            raise error_of(error.problem) from None

    def _result(
        self,
        work: Coroutine[Any, Any, Result],
        is_gone: IsGone,
        unwanted: Callable[[Result], None] = lambda _: None,
    ) -> Result:
        """What `work` returns, which runs in the event loop. If the client leaves, it is cancelled; a result that comes all the same is
        handed to `unwanted`. Raises what `work` raises, and FlightCancelledError."""
        tasks: list[asyncio.Task[Any] | None] = []

        async def run() -> Result:
            tasks.append(asyncio.current_task())
            return await work

        def cancel() -> None:
            for task in tasks:
                if task is not None:
                    task.cancel()

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        gone = False
        while not done.wait(_POLL_S):
            gone = gone or is_gone()
            if gone:
                self._loop.call_soon_threadsafe(cancel)
        try:
            result = future.result()
        except CancelledError:
            raise refused("query_cancelled", "the client has left") from None
        if gone:
            unwanted(result)
            raise refused("query_cancelled", "the client has left")
        return result

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, call)


class _Batches:
    """The iterator of a stream of rows: the statement ends with it, also if it was never begun."""

    def __init__(self, rows: Rows, is_gone: IsGone) -> None:
        self._rows = rows
        self._batches = rows.batches(is_gone)

    def __iter__(self) -> Iterator[Any]:
        return self

    @_safely
    def __next__(self) -> Any:
        try:
            return next(self._batches)
        except BaseException:
            self._rows.close()
            raise

    def __del__(self) -> None:
        self._rows.close()


async def _login(server: ServerApi, digest: str) -> Login:
    return await server.login(digest=digest)


def _never() -> bool:
    return False


def _certificates(tls: tuple[Path, Path | None]) -> list[tuple[bytes, bytes]]:
    chain, key = tls
    return [(chain.read_bytes(), (key or chain).read_bytes())]


def _decoded(message: bytes | None) -> commands.Command:
    try:
        return commands.command_of(bytes(message or b""))
    except MalformedMessageError as error:
        raise refused("invalid_request", str(error)) from None


def _caller(context: Any) -> Caller:
    found: Caller = context.get_middleware(CallerFactory.NAME)
    return found


def _subscription(headers: Mapping[str, str]) -> str:
    for name in _SUBSCRIPTION_HEADERS:
        if headers.get(name):
            return headers[name]
    remedy = "Send its name in the call header 'penstock-subscription'."
    raise refused("invalid_request", "the call names no subscription", remedy)


def _limits(caller: Caller) -> tuple[dict[str, Any], int]:
    """The `freshness` and perhaps `read_point` of a query request, and the time limit of the statement in milliseconds: by the headers of
    the call, else by the settings of the token."""
    given = {setting: caller.headers[name] for name, setting in _SETTING_HEADERS.items() if name in caller.headers}
    values = SessionParameters()
    try:
        values.start({}, caller.settings)
        return values.requirement(given), values.statement_timeout_ms() or _TIMEOUT_MS
    except SqlError as error:
        raise refused("invalid_request", error.message, error.hint) from None


def _said(answer: Answer) -> dict[str, Any]:
    """What the answer says of its rows."""
    return {
        "position": answer.position,
        "answered_by": answer.answered_by,
        "receipt": answer.receipt,
        "stale": answer.stale,
        "left_out": answer.left_out,
    }


def _add_headers(context: Any, said: Mapping[str, Any]) -> None:
    context.add_header("penstock-position", said["position"])
    context.add_header("penstock-answered-by", said["answered_by"])
    for name in ("receipt", "stale", "left_out"):
        if said[name]:
            context.add_header(f"penstock-{name.replace('_', '-')}", json.dumps(said[name]))


def _info(schema: Any, descriptor: Any, ticket: bytes, said: str = "") -> Any:
    endpoint = flight.FlightEndpoint(flight.Ticket(ticket), [])
    return flight.FlightInfo(schema, descriptor, [endpoint], app_metadata=said)
