"""One-dimensional arrays in PostgreSQL's binary form, as parameters of a statement. Vectorized."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq
from psycopg.adapt import Dumper

# PostgreSQL's catalog pg_type: OIDs of int4, text and their arrays, the same in every version.
_INT4, _TEXT = 23, 25
_INT4_ARRAY, _TEXT_ARRAY = 1007, 1009


@dataclass(frozen=True, slots=True)
class Int4Array:
    """A parameter of type int4[]."""

    body: bytes


@dataclass(frozen=True, slots=True)
class TextArray:
    """A parameter of type text[]."""

    body: bytes


def int4_array(values: npt.NDArray[Any]) -> Int4Array:
    """All values must fit into 32 bits."""
    body = np.empty(len(values), [("size", ">i4"), ("value", ">i4")])
    body["size"], body["value"] = 4, values
    return Int4Array(_header(_INT4, len(values), has_null=False) + body.tobytes())


def text_array(texts: Any) -> TextArray:
    """From a pyarrow.LargeStringArray; NULL stays NULL."""
    sizes = np.asarray(pc.fill_null(pc.binary_length(texts), -1)).astype(">i4")
    marks = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes)])
    plain = pc.fill_null(texts, "").cast(pa.large_binary())
    whole = pc.binary_join_element_wise(marks.cast(pa.large_binary()), plain, pa.scalar(b"", pa.large_binary()))
    return TextArray(_header(_TEXT, len(texts), has_null=bool(texts.null_count)) + _data(whole))


def register(connection: psycopg.Connection[Any]) -> None:
    """Let the connection accept both as parameters."""
    connection.adapters.register_dumper(Int4Array, _Int4ArrayDumper)
    connection.adapters.register_dumper(TextArray, _TextArrayDumper)


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Int4Array | TextArray) -> bytes:
        return obj.body


class _Int4ArrayDumper(_ArrayDumper):
    oid = _INT4_ARRAY


class _TextArrayDumper(_ArrayDumper):
    oid = _TEXT_ARRAY


def _header(element: int, count: int, *, has_null: bool) -> bytes:
    if count == 0:
        return struct.pack(">iiI", 0, 0, element)
    return struct.pack(">iiIii", 1, has_null, element, count, 1)


def _data(whole: Any) -> bytes:
    if not len(whole):
        return b""
    _, borders, data = whole.buffers()
    ends = np.frombuffer(borders, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])].tobytes()
