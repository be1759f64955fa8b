"""Connections: how to reach one database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from sqlmodel import Field, SQLModel

from server.db.base import document, moment

SettingValue: TypeAlias = str | int | list[dict[str, str]]
"""A setting of a connection; the list is that of nodes."""


def nodes_in(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """Names of connections by the names of the nodes that they lead to, in the order of the nodes; empty for one database."""
    nodes = settings.get("nodes")
    return {node["name"]: node["connection"] for node in nodes} if isinstance(nodes, list) else {}


class ConnectionRow(SQLModel, table=True):
    """A connection. `secrets_sealed`: ciphertext of a JSON object; `secret_names`: the names in it, readable without the key."""

    __tablename__ = "connections"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True, max_length=63)
    kind: str = Field(max_length=32)
    settings: dict[str, SettingValue] = document(default_factory=dict)
    secret_names: list[str] = document(default_factory=list)
    secrets_sealed: str | None = None
    stamp: str = Field(max_length=16)
    revision: int = 1
    created_at: datetime = moment()
    updated_at: datetime = moment()
