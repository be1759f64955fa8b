"""The list of all routers, and of the services with the lifetime of the application. A new noun adds a line here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, FastAPI

from server.alerts import delivery as alert_delivery
from server.alerts.endpoints import router as alert_channels
from server.approvals.endpoints import router as approvals
from server.batches.endpoints import router as batches
from server.connection_kinds.endpoints import router as connection_kinds
from server.connections.change_triggers import router as change_triggers
from server.connections.endpoints import router as connections
from server.cycles.endpoints import router as cycles
from server.engines import channel
from server.engines.endpoints import router as engines
from server.events.endpoints import router as events
from server.freshness.endpoints import router as freshness
from server.goals.endpoints import router as goals
from server.health.endpoints import router as health
from server.history.endpoints import router as history
from server.lag.endpoints import router as lag
from server.metrics.endpoints import router as metrics
from server.nodes.endpoints import router as nodes
from server.partitions.endpoints import router as partitions
from server.queries.endpoints import router as queries
from server.read_points.endpoints import router as read_points
from server.refused_rows.endpoints import router as refused_rows
from server.reloads.endpoints import router as reloads
from server.retries.endpoints import router as retries
from server.sample_source import service as sample_source_service
from server.sample_source.endpoints import router as sample_source
from server.schema_versions.endpoints import router as schema_versions
from server.security.endpoints import caller_router as caller
from server.security.endpoints import router as tokens
from server.sequences.endpoints import router as sequences
from server.shared_tables.endpoints import router as shared_tables
from server.snapshots import schedule as snapshot_schedule
from server.snapshots.endpoints import router as snapshots
from server.sql_endpoint.endpoints import router as sql_endpoint
from server.subscriptions.endpoints import router as subscriptions
from server.tables.endpoints import router as tables
from server.tickets.endpoints import router as tickets
from server.verifications import schedule as verification_schedule
from server.verifications.endpoints import router as verifications

API_PREFIX = "/api/v1"

API_ROUTERS: tuple[APIRouter, ...] = (
    connections,
    change_triggers,
    connection_kinds,
    sample_source,
    shared_tables,
    subscriptions,
    tables,
    schema_versions,
    approvals,
    lag,
    nodes,
    cycles,
    partitions,
    reloads,
    retries,
    refused_rows,
    freshness,
    goals,
    queries,
    read_points,
    batches,
    history,
    verifications,
    snapshots,
    tickets,
    sequences,
    events,
    alert_channels,
    sql_endpoint,
    engines,
    tokens,
    caller,
)
PLAIN_ROUTERS: tuple[APIRouter, ...] = (health, metrics)

SERVICES: tuple[Callable[[FastAPI], AbstractAsyncContextManager[None]], ...] = (
    channel.running,
    sample_source_service.running,
    alert_delivery.running,
    snapshot_schedule.running,
    verification_schedule.running,
)
"""Entered in this order once the database is open (`app.state.database`), and left in reverse order before it closes."""
