"""Bodies of the connection endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, StringConstraints, WithJsonSchema

from engine.connectors import CONNECTIONS
from engine.model.subscription import OriginFilter
from server.db.models.connection import SettingValue
from server.declarations.captures import CapturePolicy
from server.declarations.table_body import TableBody
from server.naming import QualifiedName
from server.plans import SecretsPlan
from server.remedies import Remedied

Secret = Annotated[SecretStr, Field(min_length=1, max_length=4096)]
_SETTINGS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Settings",
    "description": "By kind; unknown names are refused.",
    "anyOf": [kind.settings.model_json_schema() for kind in CONNECTIONS.values()],
}
GivenSettings = Annotated[dict[str, JsonValue], WithJsonSchema(_SETTINGS_SCHEMA)]
GivenSecrets = Annotated[
    dict[str, Secret | None],
    Field(description="Write-only. A secret that is left out stays as it is; null removes it."),
]
_POSTGRES: dict[str, Any] = {
    "kind": "postgres",
    "settings": {"host": "db.internal", "port": 5432, "database": "shop", "user": "penstock", "sslmode": "require"},
    "secrets": {"password": "s3cret"},
}
_PARTITIONED: dict[str, Any] = {
    "kind": "partitioned",
    "settings": {"nodes": [{"name": "n1", "connection": "shop_1"}, {"name": "n2", "connection": "shop_2"}]},
}
_DUCKDB: dict[str, Any] = {"kind": "duckdb", "settings": {"path": "/var/lib/penstock/mart.duckdb"}}


class ConnectionPut(BaseModel):
    """A whole connection."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, json_schema_extra={"examples": [_POSTGRES, _DUCKDB, _PARTITIONED]}
    )

    kind: Annotated[
        str, StringConstraints(max_length=32), WithJsonSchema({"type": "string", "enum": list(CONNECTIONS)})
    ]
    settings: GivenSettings
    secrets: GivenSecrets = Field(default_factory=dict)


class ConnectionPatch(BaseModel):
    """Changes to a connection; a setting that is null returns to its default."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"examples": [{"settings": {"host": "db2.internal"}}]},
    )

    settings: dict[str, JsonValue] = Field(default_factory=dict)
    secrets: GivenSecrets = Field(default_factory=dict)


class ConnectionView(BaseModel):
    """A connection, with the names of the secrets that are set but not their values."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "name": "shop",
                    "kind": "postgres",
                    "settings": _POSTGRES["settings"],
                    "secrets_set": ["password"],
                    "created_at": "2026-05-04T10:00:00Z",
                    "updated_at": "2026-05-04T10:00:00Z",
                }
            ]
        },
    )

    name: str
    kind: str
    settings: dict[str, SettingValue]
    secrets_set: list[str] = Field(validation_alias="secret_names")
    created_at: datetime
    updated_at: datetime


class ConnectionPlan(SecretsPlan):
    """What a PUT of this body would do now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "result": "changed",
                    "fields": [{"field": "settings.port", "before": 5432, "after": 5433}],
                    "secrets": ["password"],
                    "etag": '"9f86d081-3"',
                }
            ]
        }
    )

    etag: str | None = Field(
        description="The connection's current ETag; null if it does not exist. Send it as If-Match with the PUT, so that the plan still"
        " applies."
    )


class CheckRequest(BaseModel):
    """What to check beyond the connection itself."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tables": [{"schema": "public", "name": "orders"}]}]}
    )

    role: Literal["source", "target"] | None = Field(
        default=None,
        description="The intended use of the connection; by default a source, if its kind can be one. A DuckDB file is by default a"
        " target, with `capture` a source.",
    )
    tables: list[TableBody] = Field(default_factory=list, max_length=10_000)
    connection: ConnectionPut | None = Field(
        default=None,
        description="Check the connection that a PUT of this body would create; nothing is stored. It need not exist yet; if it does,"
        " secrets that are left out are the stored ones.",
    )
    origin: OriginFilter = Field(
        default=OriginFilter.ANY,
        description="The intended `capture.origin` of a subscription with this source; not used with `capture`.",
    )
    capture: CapturePolicy | None = Field(
        default=None,
        description="The intended `capture` of a subscription with this source, for instance a `publication` that exists already.",
    )


class FindingView(Remedied):
    """One result of a check."""

    severity: Literal["error", "warning", "info"] = Field(
        description="An `error` keeps a subscription from starting or a table from being replicated."
    )
    code: str
    what: str
    remedy: str
    sql: list[str] = Field(
        default_factory=list,
        description="Statements that correct it, for a user with the necessary rights; empty if there is a choice to make.",
    )


class ChecksView(BaseModel):
    """All results. `ok`: none of them is an error."""

    ok: bool
    findings: list[FindingView]


class DdlCaptureView(BaseModel):
    """The event triggers of a source that write each schema change to its log, in the transaction that makes it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "installed": True,
                    "version": 1,
                    "current": True,
                    "install_sql": ["DROP EVENT TRIGGER IF EXISTS penstock_ddl_end", "CREATE SCHEMA penstock"],
                    "remove_sql": ["DROP EVENT TRIGGER IF EXISTS penstock_ddl_end", "DROP SCHEMA IF EXISTS penstock"],
                }
            ]
        }
    )

    installed: bool = Field(description="Whether any part of it exists.")
    version: int | None = Field(
        default=None, description="The installed version; null if nothing is installed or no version is recorded."
    )
    current: bool = Field(description="Whether it is complete, enabled, and of this release.")
    install_sql: list[str] = Field(
        description="The exact statements that PUT runs if it is not current, in this order, in one transaction."
    )
    remove_sql: list[str] = Field(
        description="The exact statements that DELETE runs if it is installed, in this order, in one transaction."
    )


class ChangeTriggersRequest(BaseModel):
    """Tables of the source whose changes triggers record."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tables": [{"schema": "public", "name": "orders"}]}]}
    )

    tables: list[QualifiedName] = Field(default_factory=list, max_length=10_000)


class RecordedTableView(QualifiedName):
    """A table with triggers that record its changes."""

    variant: str = Field(description="How its rows are recorded.", examples=["json", "exact", "rows"])
    current: bool = Field(
        description="Whether its triggers are complete, fire always, and record the table's present columns exactly."
    )


class ChangeTriggersView(BaseModel):
    """The triggers that record a source's changes, and the tables that they write to."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "installed": True,
                    "version": 2,
                    "current": True,
                    "tables": [{"schema": "public", "name": "orders", "variant": "json", "current": True}],
                    "install_sql": [],
                    "remove_sql": ['DROP TRIGGER IF EXISTS "!penstock_insert" ON "public"."orders"'],
                }
            ]
        }
    )

    installed: bool = Field(description="Whether any part of it exists.")
    version: int | None = Field(default=None, description="Version of the layout; null if nothing is installed.")
    current: bool = Field(description="Whether everything that exists is complete and of this release.")
    tables: list[RecordedTableView]
    install_sql: list[str] = Field(
        description="The statements that PUT without tables runs now: they bring what exists up to date."
    )
    remove_sql: list[str] = Field(description="The statements that DELETE runs, in this order, in one transaction.")


class PlannedStatementView(BaseModel):
    """A statement, with the locks that it takes and what it costs."""

    sql: str
    lock: str
    cost: str


class ChangeTriggersPlan(BaseModel):
    """What a PUT of this body would run now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "statements": [
                        {
                            "sql": 'LOCK TABLE ONLY "public"."orders" IN SHARE ROW EXCLUSIVE MODE',
                            "lock": "SHARE ROW EXCLUSIVE on public.orders: it waits for transactions that have written to the table.",
                            "cost": "It is held until the triggers are there, some milliseconds.",
                        }
                    ],
                    "grants": ["GRANT USAGE ON SCHEMA penstock TO penstock"],
                }
            ]
        }
    )

    statements: list[PlannedStatementView] = Field(
        description="In this order. Of PostgreSQL: those of the schema `penstock` in one transaction, then those of each table in one. Of"
        " SQLite: all in one transaction, with its BEGIN and COMMIT."
    )
    grants: list[str] = Field(
        description="What an administrator runs in addition who installs it with another role than the connection's user"
        " (`capture.install` false)."
    )


class SourceColumnView(BaseModel):
    """A column of a source table; `type` as the source prints it."""

    name: str
    type: str


class SourceTableView(QualifiedName):
    """A table that could be replicated."""

    key: list[str]
    identity: str = Field(description="The table's replica identity: default, index, full or nothing.")
    partitioned: bool
    rows_estimate: int
    bytes: int
    columns: list[SourceColumnView]
    problems: list[FindingView]
