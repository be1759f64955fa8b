"""A driver of ADBC in its process: how it is found, what it says of tables, and their rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from typing import Any
from urllib.parse import quote

from adbc_driver_manager import dbapi

from engine.model.fault import EngineFault, FaultKind
from engine.sources.adbc_queries import sqlite
from engine.sources.arrow_rows.driver import SYSTEM_SCHEMAS, Found, Name, options_given, select_all
from engine.sources.arrow_rows.forms import Form, form_of
from engine.sources.arrow_rows.options import PASSWORD, PLACE_OF_PASSWORD, QUOTE

_K = FaultKind
_PACKAGE = re.compile(r"adbc_driver_[a-z0-9_]+")
_READABLE = re.compile(r"table|view", re.IGNORECASE)
_NOT_READ = re.compile(r"system|toast|index|temp", re.IGNORECASE)
"""What types of relations are called that are not listed."""


def open_driver(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> AdbcDriver:
    """An `Opener`."""
    return AdbcDriver(_library(str(settings.get("driver", ""))), _options(settings, secrets), _mark(settings))


def _mark(settings: Mapping[str, Any]) -> str:
    return str(settings.get("quote", QUOTE))


def _library(driver: str) -> str:
    """The path of the driver's shared library. Raises EngineFault(SOURCE_UNREACHABLE)."""
    if _PACKAGE.fullmatch(driver) is None or driver == "adbc_driver_manager":
        raise EngineFault(_K.SOURCE_UNREACHABLE, "", f"{driver} is no package of a driver of ADBC")
    name = driver.replace("_", "-")
    try:
        found = import_module(driver)
    except ImportError as error:
        what = f"the driver {driver} is not installed: install it in the engine's environment: pip install {name}"
        raise EngineFault(_K.SOURCE_UNREACHABLE, "", what) from error
    path = getattr(found, "_driver_path", None)
    if path is None:
        raise EngineFault(_K.SOURCE_UNREACHABLE, "", f"the package {driver} has no driver of ADBC")
    return str(path())


def _options(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """Options of the database. Raises EngineFault(SOURCE_UNREACHABLE)."""
    found = options_given(settings, secrets)
    password, uri = secrets.get(PASSWORD), settings.get("uri")
    if uri is not None:
        if PLACE_OF_PASSWORD in uri and password is None:
            what = f"the address has {PLACE_OF_PASSWORD} in it, and the connection no secret `{PASSWORD}`"
            raise EngineFault(_K.SOURCE_UNREACHABLE, "", what)
        found["uri"] = str(uri).replace(PLACE_OF_PASSWORD, quote(password or "", safe=""))
    if password is not None and (uri is None or PLACE_OF_PASSWORD not in uri):
        found["password"] = password
    return found


class AdbcDriver:
    """`Driver` over one connection, each statement of which is a transaction."""

    def __init__(self, library: str, options: Mapping[str, str], mark: str) -> None:
        self._library = library
        self._options = dict(options)
        self._mark = mark
        self._connection = self._connect()
        vendor = ""
        with suppress(dbapi.Error):
            vendor = str(self._connection.adbc_get_info().get("vendor_name", ""))
        self._is_sqlite = vendor == "SQLite"

    def _connect(self) -> Any:
        return dbapi.connect(driver=self._library, db_kwargs=self._options, autocommit=True)

    def check(self) -> None:
        with closing(self._connect()) as connection, suppress(dbapi.NotSupportedError):
            # Some drivers do nothing before.
            connection.adbc_get_objects(depth="catalogs").read_all()

    def reopen(self) -> None:
        self._connection.close()
        self._connection = self._connect()

    def tables(self, names: Collection[Name] | None) -> Mapping[Name, Found]:
        found: dict[Name, Found] = {}
        for wanted in [None] if names is None else sorted(names):
            for name, catalog, table in self._listed(wanted):
                if wanted is None or name == wanted:
                    found[name] = self._described(name, catalog, table)
        return found

    def _listed(self, wanted: Name | None) -> Iterator[tuple[Name, str | None, Mapping[str, Any]]]:
        """Tables as the driver lists them; at least the wanted one."""
        current = None
        with suppress(dbapi.Error):
            current = self._connection.adbc_current_catalog or None
        # A pattern, in which `_` is any character: the caller compares.
        pattern = None if wanted is None else wanted[1].replace("\\", "_")
        listed = self._connection.adbc_get_objects(depth="all", table_name_filter=pattern).read_all().to_pylist()
        for catalog in listed:
            if current is not None and catalog["catalog_name"] != current:
                continue
            for schema in catalog["catalog_db_schemas"] or ():
                space = schema["db_schema_name"] or catalog["catalog_name"] or ""
                if space.lower() in SYSTEM_SCHEMAS:
                    continue
                for table in schema["db_schema_tables"] or ():
                    kind = table["table_type"] or "table"
                    if _READABLE.search(kind) and not _NOT_READ.search(kind):
                        yield (space, table["table_name"]), catalog["catalog_name"], table

    def _described(self, name: Name, catalog: str | None, table: Mapping[str, Any]) -> Found:
        key: Sequence[str] = ()
        for constraint in table["table_constraints"] or ():
            if constraint["constraint_type"] == "PRIMARY KEY":
                key = constraint["constraint_column_names"] or ()
        listed = sorted(table["table_columns"] or (), key=lambda each: each["ordinal_position"] or 0)
        shown = {each["column_name"]: each["xdbc_type_name"] or "" for each in listed}
        if self._is_sqlite:
            return Found(tuple((c, kind, sqlite.form_of(kind)) for c, kind in shown.items()), tuple(key))
        schema = None if name[0] == catalog else name[0]
        try:
            fields = self._connection.adbc_get_table_schema(name[1], db_schema_filter=schema)
        except dbapi.Error as error:
            return Found((), (), f"the driver does not describe its columns ({type(error).__name__})")
        return Found(tuple((f.name, shown.get(f.name) or str(f.type), form_of(f)) for f in fields), tuple(key))

    def rows(self, name: Name, columns: Sequence[str]) -> tuple[list[Form], Iterator[Any]]:
        if self._is_sqlite:
            return self._rows_of_sqlite(name, columns)
        cursor = self._connection.cursor()
        cursor.execute(select_all(name, columns, self._mark))
        reader = cursor.fetch_record_batch()
        return [form_of(field) for field in reader.schema], _closing(cursor, reader)

    def _rows_of_sqlite(self, name: Name, columns: Sequence[str]) -> tuple[list[Form], Iterator[Any]]:
        found = self.tables({name}).get(name)
        there = {} if found is None else {column[0]: column for column in found.columns}
        if not set(columns) <= there.keys():
            raise EngineFault(_K.TABLE_STRUCTURE_CHANGED, "", "a column is gone")
        taken = [there[column] for column in columns]
        cursor = self._connection.cursor()
        cursor.execute(sqlite.select_all(name, taken))
        return [form for _, _, form in taken], _closing(cursor, sqlite.without_first(cursor.fetch_record_batch()))


def _closing(cursor: Any, reader: Any) -> Iterator[Any]:
    with closing(cursor):
        yield from reader
