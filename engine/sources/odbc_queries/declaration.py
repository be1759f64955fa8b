"""Databases read by a driver of ODBC as a kind of connection, captured by queries."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from engine.kinds import ConnectionKind, Imported, KindSettings, SourceKind
from engine.model.masks import MASK_KEY
from engine.sources.arrow_rows.declaration import QUOTE_WORDS, DriverCapture, Options, Quote
from engine.sources.arrow_rows.options import LONGEST_VALUE, PASSWORD, QUOTE, SECRET_OPTIONS
from engine.sources.odbc_queries.terms import ODBC_QUERIES_TERMS

DRIVER = "engine.sources.odbc_queries.driver:open_driver"


class OdbcSettings(KindSettings):
    """A database that a driver of ODBC reads. unixODBC and the driver are installed on the engine's machine."""

    driver: Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^\x00{};/]+$")] = Field(
        description="The driver's name as `odbcinst -q -d` shows it, such as `PostgreSQL Unicode`."
    )
    options: Options = Field(
        default="",
        description="The rest of the connection string without secrets, such as `Server=db.internal;Database=shop;UID=penstock`.",
    )
    longest_value: int = Field(
        default=LONGEST_VALUE,
        ge=64,
        le=268_435_456,
        description="Bytes of the longest text or binary value where the driver does not limit it. A table with a longer one is parked."
        " While a table is read, memory for so many bytes in each such column is used.",
    )
    quote: Quote = Field(default=QUOTE, description=QUOTE_WORDS)


ODBC_CONNECTION = ConnectionKind(
    "odbc",
    "ODBC",
    OdbcSettings,
    {
        "driver": "Driver",
        "options": "Connection string",
        "longest_value": "Bytes of the longest value",
        "quote": "Quotes of names",
        SECRET_OPTIONS: "Secret options",
        MASK_KEY: "Key of hashed columns",
    },
    frozenset({PASSWORD, SECRET_OPTIONS, MASK_KEY}),
)

ODBC_QUERIES = SourceKind(
    ODBC_CONNECTION,
    DriverCapture,
    ODBC_QUERIES_TERMS,
    Imported("engine.sources.odbc_queries.source:open_source"),
    Imported("engine.sources.query_diff.kernels:warm"),
    preloaded=("engine.sources.odbc_queries.source", "engine.sources.query_diff.kernels"),
)
