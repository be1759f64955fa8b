"""The columns of parts, and the SQL that reads the parts of a table."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.duckdb.value_text import literal, quoted
from engine.sources.duckdb.types import ColumnKind, kind_of, text_kind_of
from engine.sources.files_queries.listing import Part

Column = tuple[str, str]
"""Name and type, as DuckDB names it."""
GROUP = "penstock group"
"""The column of a part's group in the SQL that reads a table."""
GROUPS = 16
"""Groups of parts; a part's group follows from its name, so that groups hold every part of whatever set. Not measured."""
_COMPRESSION = {False: "'none'", True: "'gzip'"}
_LONGEST_HEADER = 1 << 20
"""Bytes of the longest line of column names."""


class UnfitPartError(Exception):
    """A part cannot be read as one of its table; the text says why."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How CSV files are written. `null_text`: the text of NULL."""

    delimiter: str
    header: bool
    null_text: str


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What a part says of itself. `rows`: of CSV, estimated."""

    columns: tuple[Column, ...]
    rows: int


def parquet_facts(connection: Any, path: str) -> PartFacts:
    """Raises what DuckDB raises for a file that is no Parquet file."""
    name = literal(path)
    columns = connection.execute(f"DESCRIBE SELECT * FROM read_parquet({name}, hive_partitioning = false)").fetchall()
    rows = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({name})").fetchall()[0][0]
    return PartFacts(tuple((str(name), str(kind)) for name, kind, *_ in columns), int(rows or 0))


def csv_facts(path: str, name: str, form: CsvForm, declared: Sequence[str]) -> PartFacts:
    """`name`: of the file, whose ending says how it is compressed; `declared`: the columns of files without a header. Rows are estimated by
    the first ones.

    Raises UnfitPartError, OSError.
    """
    with gzip.open(path, "rb") if name.endswith(".gz") else Path(path).open("rb") as file:
        head = file.read(_LONGEST_HEADER)
    size = len(head) if name.endswith(".gz") else Path(path).stat().st_size
    rows = head.count(b"\n") * size // max(1, len(head))
    names = _header(head, name, form) if form.header else declared
    if not names:
        raise UnfitPartError("the files have no header, and `columns` in capture.tables does not name its columns")
    return PartFacts(tuple((column, "VARCHAR") for column in names), rows)


def _header(head: bytes, name: str, form: CsvForm) -> Sequence[str]:
    text = io.TextIOWrapper(io.BytesIO(head), "utf-8-sig", errors="surrogateescape", newline="")
    try:
        names = next(csv.reader(text, delimiter=form.delimiter, strict=True), [])
        "".join(names).encode("utf-8")
    except (csv.Error, UnicodeEncodeError) as error:
        raise UnfitPartError(f"{name} does not begin with a line of column names in UTF-8") from error
    if not names or "" in names:
        raise UnfitPartError(f"{name} does not begin with a line of column names")
    if len({column.lower() for column in names}) < len(names):
        raise UnfitPartError(f"{name} has two columns whose names differ in case at most")
    return names


def joined(parts: Sequence[tuple[Part, PartFacts]], form: str) -> tuple[Column, ...]:
    """The columns of a table. Parquet: those of all parts, in the order in which they appear; where a part lacks one, it is NULL.

    Raises UnfitPartError if parts disagree.
    """
    found: dict[str, str] = {}
    first, first_facts = parts[0]
    for part, facts in parts:
        for name, kind in facts.columns:
            if found.setdefault(name, kind) != kind:
                raise UnfitPartError(f"{name} is {kind} in {part.name}, and {found[name]} in another part")
        if form == "csv" and {name for name, _ in facts.columns} != {name for name, _ in first_facts.columns}:
            raise UnfitPartError(f"{part.name} has other columns than {first.name}")
    lower = [name.lower() for name in found]
    if len(set(lower)) < len(lower):
        raise UnfitPartError("two columns have names that differ in case at most")
    return tuple(found.items())


def kinds_of(columns: Sequence[Column], declared: Mapping[str, str]) -> list[tuple[str, str, ColumnKind | None, bool]]:
    """The columns with their kinds. `declared`: types of columns of text by name.

    Raises UnfitPartError if there is no such column or type.
    """
    unknown = [name for name in declared if name not in dict(columns)]
    if unknown:
        raise UnfitPartError(f"`columns` in capture.tables names columns that it does not have: {', '.join(unknown)}")
    found = []
    for name, kind in columns:
        wanted = declared.get(name)
        if wanted is None:
            found.append((name, kind, kind_of(kind), True))
            continue
        read = text_kind_of(wanted)
        if read is None:
            raise UnfitPartError(f"`columns` in capture.tables gives {name} a type that text is not read as: {wanted}")
        found.append((name, read.declared, read, True))
    return found


def parquet_rows(paths: Mapping[int, Sequence[str]]) -> str:
    """A query for the rows of parts, by group."""
    return _union(
        f"SELECT *, {group} AS {quoted(GROUP)} FROM read_parquet({_list(each)}, union_by_name = true, hive_partitioning = false)"
        for group, each in sorted(paths.items())
    )


def csv_rows(paths: Mapping[tuple[int, bool, tuple[str, ...]], Sequence[str]], form: CsvForm) -> str:
    """A query for the rows of parts, by group, whether they are compressed, and the names of their columns."""
    options = (
        f"auto_detect = false, delim = {literal(form.delimiter)}, quote = '\"', escape = '\"', header = {str(form.header).lower()},"
        f" nullstr = {literal(form.null_text)}, allow_quoted_nulls = false, null_padding = false, ignore_errors = false,"
        " strict_mode = true, hive_partitioning = false, encoding = 'utf-8'"
    )
    return _union(
        f"SELECT *, {group} AS {quoted(GROUP)} FROM read_csv({_list(each)}, {options}, compression = {_COMPRESSION[packed]},"
        f" columns = {{{', '.join(map(_text_column, names))}}})"
        for (group, packed, names), each in sorted(paths.items())
    )


def _text_column(name: str) -> str:
    return f"{literal(name)}: 'VARCHAR'"


def _union(queries: Any) -> str:
    return " UNION ALL BY NAME ".join(f"({query})" for query in queries)


def _list(paths: Sequence[str]) -> str:
    return f"[{', '.join(map(literal, paths))}]"
