"""Wire form of the model's connections and tables. Only `encode` writes a connection's secrets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, SerializationInfo, SerializerFunctionWrapHandler, WrapSerializer

from engine.link.message import is_wire
from engine.model.subscription import ConnectionSpec, TableSpec

_HIDDEN = "**********"


def _write_connection(
    spec: ConnectionSpec, write: SerializerFunctionWrapHandler, info: SerializationInfo
) -> dict[str, Any]:
    """The connection without its capture, which is a field of `Assign`."""
    written: dict[str, Any] = write(spec)
    del written["capture"]
    if not is_wire(info):
        written["secrets"] = dict.fromkeys(written["secrets"], _HIDDEN)
    return written


def _read_table(value: object) -> object:
    """Accepts `shared_into` in the wire form or in the stored form."""
    if not isinstance(value, dict) or "shared_into" not in value:
        return value
    into = value["shared_into"]
    if isinstance(into, dict):
        into = {**into, "relation": {name: into[name] for name in ("schema", "name") if name in into}}
    return {**value, "shared": into}


def _write_table(spec: TableSpec, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
    """The table without fields that the engine sets, and without `staging` where it has none."""
    written: dict[str, Any] = write(spec)
    del written["shared"], written["map_others_as"], written["mask_mark"]
    if not spec.staging:
        del written["staging"]
    return {**written, "shared_into": spec.shared.document() if spec.shared is not None else None}


Connection = Annotated[ConnectionSpec, WrapSerializer(_write_connection)]
DeclaredTable = Annotated[TableSpec, BeforeValidator(_read_table), WrapSerializer(_write_table)]
