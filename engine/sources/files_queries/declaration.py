"""Folders of CSV and Parquet files as a kind of connection, captured by queries."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from engine.kinds import ConnectionKind, Imported, KindSettings, SourceKind
from engine.model.masks import MASK_KEY
from engine.sources.files_queries.terms import FILES_QUERIES_TERMS
from engine.sources.query_diff.declaration import QueryDiffCapture

_Absolute = Annotated[str, StringConstraints(min_length=2, max_length=1024, pattern=r"^/[^\x00]*$")]


class FilesSettings(KindSettings):
    """A folder of CSV or Parquet files on the engine's machine. Each folder in it is a table, whose parts are the files in that folder; a
    file in it is a table too. Their schema is `files`."""

    path: _Absolute = Field(description="Absolute path of the folder, as seen from the engine's machine.")
    format: Literal["parquet", "csv"] = Field(
        default="parquet",
        description="`parquet`: files `*.parquet`. `csv`: files `*.csv` and `*.csv.gz`, in UTF-8, with double quotes.",
    )
    delimiter: Annotated[str, StringConstraints(pattern=r'^([^\x00-\x20"]|tab)$')] = Field(
        default=",", description="For CSV: the character between two values, or `tab`."
    )
    header: Literal["names", "none"] = Field(
        default="names",
        description="For CSV: `names`: each file begins with a line of column names. `none`: `columns` of a table in `capture.tables`"
        " names them, in their order.",
    )
    null_text: Annotated[str, StringConstraints(max_length=64, pattern=r'^[^\x00"\r\n]*$')] = Field(
        default="", description="For CSV: the text of NULL where it is not quoted; in quotes it is that text."
    )


FILES_CONNECTION = ConnectionKind(
    "files",
    "Files",
    FilesSettings,
    {
        "path": "Folder",
        "format": "Format",
        "delimiter": "Character between values",
        "header": "First line",
        "null_text": "Text of NULL",
        MASK_KEY: "Key of hashed columns",
    },
    frozenset({MASK_KEY}),
)


class FilesQueriesCapture(QueryDiffCapture):
    """How changes are found."""

    words: ClassVar[str] = (
        "The files are read again and again, and their rows compared with what they were before. Nothing is written to the folder. Each"
        " cycle reads every file of the followed tables as they were at one moment; files must be put in place by renaming them, and"
        " never be changed afterwards. The subscription declares the columns that identify a row of each table, and for CSV their"
        " types. The target shows the folder at the moments of cycles only. After a change of its columns a table is copied again. Not"
        " possible: lists, structs and maps, row filters, tables without columns that identify a row."
    )

    table_options: ClassVar[frozenset[str]] = frozenset({"key", "columns"})
    unstamped: ClassVar[str | None] = "no database sets stamps in files"
    kind: Literal["query_diff"] = Field(default="query_diff", description=words)
    method: Literal["incremental"] = Field(
        default="incremental",
        title="How changes are found",
        description="`incremental`: all rows are read, and hashed by Penstock.",
    )


FILES_QUERIES = SourceKind(
    FILES_CONNECTION,
    FilesQueriesCapture,
    FILES_QUERIES_TERMS,
    Imported("engine.sources.files_queries.source:open_source"),
    Imported("engine.sources.query_diff.kernels:warm"),
    preloaded=("engine.sources.files_queries.source", "engine.sources.query_diff.kernels"),
)
