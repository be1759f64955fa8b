"""A table's schema as versioned JSON, as stored in the target's metadata. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from engine.model.identity import RelationId, TableName
from engine.model.masks import HashType, Mask, MaskMethod
from engine.model.row_filter import RowFilter
from engine.model.schema import Column, Expression, Input, KeyMode, ReplicaIdentity, SourceType, TableSchema

FORMAT = 1
"""Version of this text form, the engine's own; another one is refused."""
WITH_HISTORY = '"history":true'
"""Part of the text of a schema with history, and of no other."""
WITH_STAGING = '"staging":true'
"""Part of the text of a schema with a CD table, and of no other."""


def to_text(schema: TableSchema) -> str:
    """One line of JSON; equal schemas have equal text."""
    body = {
        "format": FORMAT,
        "schema": schema.name.schema,
        "name": schema.name.name,
        "relation": schema.relation,
        "columns": [_column(column) for column in schema.columns],
        "key": list(schema.key),
        "mode": schema.mode.value,
        "identity": schema.identity.value,
        "relfilenode": schema.relfilenode,
        "unsent": list(schema.unsent),
        "last_number": schema.last_number,
        "row_filter": asdict(schema.row_filter) if schema.row_filter is not None else None,
        "soft_delete": schema.soft_delete,
        "history": schema.history,
        **({"staging": True} if schema.staging else {}),
        "skipped": sorted(schema.skipped),
        "scattered": schema.scattered,
    }
    return json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=4096)
def from_text(text: str) -> TableSchema:
    """The schema that `to_text` wrote.

    Raises:
        ValueError: the format is unknown to this version.
    """
    body = json.loads(text)
    if body.get("format") != FORMAT:
        message = f"structure of format {body.get('format')!r}, this version knows {FORMAT}"
        raise ValueError(message)
    return TableSchema(
        name=TableName(body["schema"], body["name"]),
        relation=RelationId(body["relation"]),
        columns=tuple(_read_column(column) for column in body["columns"]),
        key=tuple(body["key"]),
        mode=KeyMode(body["mode"]),
        identity=ReplicaIdentity(body["identity"]),
        relfilenode=body["relfilenode"],
        unsent=tuple(body.get("unsent", ())),
        last_number=body.get("last_number", 0),
        row_filter=_read_filter(body["row_filter"]) if body.get("row_filter") is not None else None,
        soft_delete=body.get("soft_delete", False),
        history=body.get("history", False),
        staging=body.get("staging", False),
        skipped=frozenset(body.get("skipped", ())),
        scattered=body.get("scattered", False),
    )


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": _type(column.type),
        "attnum": column.attnum,
        "nullable": column.nullable,
        "fill": column.fill,
        "map_as": column.map_as,
        "edition": column.edition,
        "labels": list(column.labels),
        "label_editions": list(column.label_editions),
        "generated": column.generated,
        "source_name": column.source_name,
        "mask": asdict(column.mask) if column.mask is not None else None,
        "mask_mark": column.mask_mark,
        "expression": _expression(column.expression) if column.expression is not None else None,
    }


def _expression(expression: Expression) -> dict[str, Any]:
    inputs = [[one.attnum, one.name, one.type] for one in expression.inputs]
    return {"sql": expression.sql, "mark": expression.mark, "inputs": inputs}


def _read_expression(body: dict[str, Any]) -> Expression:
    return Expression(body["sql"], body["mark"], tuple(Input(*one) for one in body["inputs"]))


def _type(source: SourceType) -> dict[str, Any]:
    return {
        "name": source.name,
        "modifier": source.modifier,
        "category": source.category,
        "element": _type(source.element) if source.element is not None else None,
        "oid": source.oid,
        "delimiter": source.delimiter,
    }


def _read_column(body: dict[str, Any]) -> Column:
    kind = _read_type(body["type"])
    since = {
        "edition": body.get("edition", 0),
        "labels": tuple(body.get("labels", ())),
        "label_editions": tuple(body.get("label_editions", ())),
        "generated": body.get("generated", False),
        "source_name": body.get("source_name"),
        "mask": _read_mask(body["mask"]) if body.get("mask") is not None else None,
        "mask_mark": body.get("mask_mark"),
        "expression": _read_expression(body["expression"]) if body.get("expression") is not None else None,
    }
    return Column(body["name"], kind, body["attnum"], body["nullable"], body["fill"], body["map_as"], **since)


def _read_mask(body: dict[str, Any]) -> Mask:
    return Mask(MaskMethod(body["method"]), body["value"], HashType(body["type"]))


def _read_filter(body: dict[str, Any]) -> RowFilter:
    return RowFilter(body["text"], tuple((number, name) for number, name in body["columns"]))


def _read_type(body: dict[str, Any]) -> SourceType:
    element = _read_type(body["element"]) if body["element"] is not None else None
    return SourceType(
        body["name"], body["modifier"], body["category"], element, body["oid"], body.get("delimiter", ",")
    )
