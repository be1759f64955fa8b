"""Bodies of the endpoint of connection kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.connectors import SOURCES
from engine.kinds import Capture, ConnectionKind

_EXAMPLE: dict[str, Any] = {
    "kind": "postgres",
    "title": "PostgreSQL",
    "description": "A PostgreSQL database.",
    "source": True,
    "target": True,
    "embedded": False,
    "settings": {"type": "object", "properties": {"host": {"type": "string", "title": "Host"}}, "required": ["host"]},
    "secrets": {"type": "object", "properties": {"password": {"type": "string", "title": "Password"}}},
    "captures": [
        {
            "kind": "postgres_log",
            "title": "Log",
            "description": "The source's log.",
            "by_triggers": False,
            "table_options": [],
            "settings": {},
        }
    ],
}


class CaptureKindView(BaseModel):
    """A way to read the changes of a source."""

    kind: str = Field(description="For `capture.kind` of a subscription.")
    title: str
    description: str
    by_triggers: bool = Field(
        description="Whether triggers on the source record the changes: `/connections/{name}/change-triggers` shows and installs them."
    )
    table_options: list[str] = Field(
        description="Which of `flag_column`, `key`, `columns` and `stamps_below` an entry of `capture.tables` can have. Empty if there is"
        " no `tables`."
    )
    settings: dict[str, Any] = Field(description="JSON schema of a subscription's `capture` of this kind.")


class ConnectionKindView(BaseModel):
    """A kind of connection, with what a form for one needs."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    kind: str = Field(description="For `kind` of a connection.")
    title: str
    description: str
    source: bool = Field(description="Whether it can be a source.")
    target: bool = Field(description="Whether it can be a target.")
    embedded: bool = Field(
        description="Whether the engine opens the database itself and creates it where it is missing. Other programs query it through"
        " Penstock."
    )
    settings: dict[str, Any] = Field(description="JSON schema of a connection's `settings`.")
    secrets: dict[str, Any] = Field(description="JSON schema of a connection's `secrets`.")
    captures: list[CaptureKindView] = Field(
        description="How its changes can be read. The first one is used where a subscription names none."
    )


def kind_view(kind: ConnectionKind) -> ConnectionKindView:
    settings = kind.settings.model_json_schema()
    settings["properties"] = _labelled(settings["properties"], kind.labels)
    secrets = {name: {"type": "string", "title": name.title()} for name in sorted(kind.secrets)}
    return ConnectionKindView(
        kind=kind.name,
        title=kind.title,
        description=settings["description"],
        source=kind.source,
        target=kind.target,
        embedded=kind.embedded,
        settings=settings,
        secrets={"type": "object", "properties": _labelled(secrets, kind.labels), "additionalProperties": False},
        captures=[_capture_view(SOURCES[kind.name, name].capture, name) for name in kind.captures],
    )


def _capture_view(capture: type[Capture], kind: str) -> CaptureKindView:
    return CaptureKindView(
        kind=kind,
        title=capture.title,
        description=capture.words,
        by_triggers=capture.by_triggers,
        table_options=sorted(capture.table_options),
        settings=capture.model_json_schema(),
    )


def _labelled(properties: Mapping[str, dict[str, Any]], labels: Mapping[str, str]) -> dict[str, Any]:
    return {name: {**each, "title": labels.get(name, each["title"])} for name, each in properties.items()}
