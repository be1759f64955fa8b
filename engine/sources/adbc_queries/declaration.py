"""Databases read by a driver of ADBC as a kind of connection, captured by queries."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from engine.kinds import ConnectionKind, Imported, KindSettings, SourceKind, Text
from engine.model.masks import MASK_KEY
from engine.sources.adbc_queries.terms import ADBC_QUERIES_TERMS
from engine.sources.arrow_rows.declaration import QUOTE_WORDS, DriverCapture, Options, Quote
from engine.sources.arrow_rows.options import PASSWORD, PLACE_OF_PASSWORD, QUOTE, SECRET_OPTIONS

DRIVER = "engine.sources.adbc_queries.driver:open_driver"
_IN_URI = re.compile(r"(?:^|[?&;\s])[\w.-]*(?:pwd|passw|secret|token|api_?key)[\w.-]*\s*=\s*([^&;\s]*)", re.IGNORECASE)
_PACKAGE = r"adbc_driver_[a-z0-9_]+"


class AdbcSettings(KindSettings):
    """A database that a driver of ADBC reads. The driver is a package of Python in the engine's environment."""

    driver: Annotated[str, StringConstraints(max_length=1024, pattern=f"^{_PACKAGE}$")] = Field(
        description="A package in the engine's environment, such as `adbc_driver_postgresql`."
    )
    uri: Text | None = Field(
        default=None,
        description="Where the database is, as the driver takes it. `{password}` in it is replaced by the secret `password`.",
    )
    options: Options = Field(
        default="",
        description="Options of the driver's database object as `name=value;name=value`. Secret ones belong in `secret_options`.",
    )
    quote: Quote = Field(default=QUOTE, description=QUOTE_WORDS)

    @field_validator("uri")
    @classmethod
    def _has_no_password(cls, uri: str | None) -> str | None:
        """What a message shows of it is the rule only, never the address."""
        if uri is None:
            return None
        try:
            found = urlsplit(uri).password
        except ValueError:
            raise ValueError("this is no address") from None
        given = [each for each in (found, *_IN_URI.findall(uri)) if each not in {None, "", PLACE_OF_PASSWORD}]
        if given:
            raise ValueError(
                f"write {PLACE_OF_PASSWORD} in place of the password, and store it as the secret `{PASSWORD}`"
            )
        return uri


ADBC_CONNECTION = ConnectionKind(
    "adbc",
    "ADBC",
    AdbcSettings,
    {
        "driver": "Driver",
        "uri": "Address",
        "options": "Options",
        "quote": "Quotes of names",
        SECRET_OPTIONS: "Secret options",
        MASK_KEY: "Key of hashed columns",
    },
    frozenset({PASSWORD, SECRET_OPTIONS, MASK_KEY}),
)

ADBC_QUERIES = SourceKind(
    ADBC_CONNECTION,
    DriverCapture,
    ADBC_QUERIES_TERMS,
    Imported("engine.sources.adbc_queries.source:open_source"),
    Imported("engine.sources.query_diff.kernels:warm"),
    preloaded=("engine.sources.adbc_queries.source", "engine.sources.query_diff.kernels"),
)
