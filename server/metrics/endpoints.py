"""`/metrics` in Prometheus' text format.

It contains names of subscriptions, so it requires a viewer's token like the rest of the API.
"""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from server.metrics.meters import Meters
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(tags=["metrics"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "/metrics", operation_id="metrics_get", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def get_metrics(request: Request) -> Response:
    """All metrics."""
    meters = cast("Meters", request.app.state.meters)
    return Response(generate_latest(meters.registry), media_type=CONTENT_TYPE_LATEST)
