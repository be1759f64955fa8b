"""What a capture may declare for one table is refused where it contradicts itself, or the source has no such method."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine.connectors import SOURCES
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.given import Detection, given_by
from tests.fixtures.replication import table

FLAGGED = {"method": "timestamp_delete_flag", "stamp_column": "at", "flag_column": "deleted"}

BELOW = {
    "method": "timestamp",
    "key": ["id"],
    "stamps_below": {"public.lines": {"stamp_column": "at", "columns": {"id": "order_id"}}},
}


@pytest.mark.parametrize(
    "declared",
    [
        {"method": "timestamp_delete_flag", "stamp_column": "at"},
        {"method": "timestamp_delete_flag", "flag_column": "deleted"},
        {"method": "timestamp", "stamp_column": "at", "flag_column": "deleted"},
        {"method": "row_checksum", "stamp_column": "at"},
        {"flag_column": "deleted"},
        {"key": []},
        {"key": ["id", "id"]},
        {**FLAGGED, "key": ["id"]},
        {**BELOW, "key": None},
        {**BELOW, "method": None},
        {**BELOW, "method": "row_checksum"},
        {**BELOW, "stamp_column": "at"},
        {**BELOW, "method": "timestamp_delete_flag", "flag_column": "deleted"},
        {**BELOW, "stamps_below": {}},
        {**BELOW, "stamps_below": {"public.lines": {"stamp_column": "at", "columns": {}}}},
        {**BELOW, "stamps_below": {"public.lines": {"columns": {"id": "id"}}}},
    ],
)
def test_a_contradiction_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TableDetection.model_validate(declared)


@pytest.mark.parametrize(
    ("kind", "declared"),
    [(kind, one) for kind in ("mariadb", "sqlite") for one in ({"key": ["id"]}, BELOW)],
)
def test_other_databases_refuse_declared_keys_and_stamps_below(kind: str, declared: dict[str, Any]) -> None:
    document = {"kind": "query_diff", "tables": {"main.orders": declared}}
    with pytest.raises(ValidationError, match="not possible with this kind of source"):
        SOURCES[kind, "query_diff"].capture.model_validate(document)
    assert SOURCES["postgres", "query_diff"].capture.model_validate(document) is not None


@pytest.mark.parametrize(
    ("method", "hashed"),
    [
        ("incremental", Method.INCREMENTAL),
        ("row_checksum", Method.ROW_CHECKSUM),
        ("range_checksum", Method.ROW_CHECKSUM),
        ("outer_join", Method.ROW_CHECKSUM),
    ],
)
def test_the_settings_reach_the_engine_as_declared(method: str, hashed: Method) -> None:
    capture = SOURCES["postgres", "query_diff"].capture.model_validate(
        {"kind": "query_diff", "method": method, "tables": {"public.orders": {**FLAGGED, "sweep_every": 3}}}
    )
    assigned = capture.assigned()["capture"]
    given = given_by(ConnectionSpec("shop", "postgres", capture=CaptureSpec("query_diff", assigned["settings"])))
    assert given.detection(table("orders").source) == Detection(hashed, "at", 3)
    assert given.tables["public.orders"].flag_column == "deleted"


def test_stamps_below_reach_the_engine_as_declared() -> None:
    capture = SOURCES["postgres", "query_diff"].capture.model_validate(
        {"kind": "query_diff", "tables": {"public.orders": {**BELOW, "sweep_every": 4}}}
    )
    settings = capture.assigned()["capture"]["settings"]
    given = given_by(ConnectionSpec("shop", "postgres", capture=CaptureSpec("query_diff", settings)))
    assert given.detection(table("orders").source) == Detection(Method.INCREMENTAL, None, 4)
    assert given.tables["public.orders"].stamps_below["public.lines"].columns == {"id": "order_id"}
