"""The work of a copy task: it reads splits under the imported snapshot, decodes them, and writes Arrow files for the engine process.

The task depends on no driver: the functions that open the source and decode rows are passed in (as a functools.partial of `copy_task`).
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.copy.rate_limit import RateLimiter, at_lower_priority, read_pace
from engine.model.batch import TableFault
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, TableId
from engine.model.quarantine import RefusedCause, Texts
from engine.model.schema import TableSchema
from engine.model.source import Source, TableSplit
from engine.model.subscription import ConnectionSpec

OpenSource = Callable[[ConnectionSpec], Source]
Decode = Callable[[bytes, TableSchema], Any]
"""Decodes COPY text (whole lines) of a table with this schema into a pyarrow.RecordBatch with columns c0 … cn. Raises
EngineFault(VALUE_OUT_OF_DOMAIN) for a value that its column cannot hold."""

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits on a task's memory and on the size of a file. Rows are decoded and written in pieces of about `batch_bytes` of COPY text; a
    larger row is a piece of its own. A file is closed once it has `file_bytes`."""

    batch_bytes: int = 8 * 1024**2
    file_bytes: int = 32 * 1024**2


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One split to read. Its files are named after table, split number and attempt."""

    table: TableId
    number: int
    attempt: int
    schema: TableSchema
    split: TableSplit
    set_aside: int = 0
    """Most rows that cannot be decoded and are returned in `PartResult.refused`; 0: such a row is a fault."""


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Descriptor of one task: the connection, the snapshot, the splits, and the folder for the files."""

    epoch: Epoch
    connection: ConnectionSpec
    snapshot: str
    staging: str
    parts: tuple[SplitPart, ...]
    limits: ReadLimits = ReadLimits()
    pace: str | None = None
    """File with the rate limit (see `rate_limit.py`); None: unlimited."""
    readers: int = 1
    """Number of tasks that read concurrently and share the rate limit."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """An Arrow IPC stream file with some of a split's rows."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of one split; `files` are complete only if there is no fault. `bytes`: of COPY text."""

    table: TableId
    number: int
    attempt: int
    files: tuple[StagedFile, ...] = ()
    rows: int = 0
    bytes: int = 0
    fault: TableFault | None = None
    refused: tuple[tuple[Texts, RefusedCause], ...] = ()
    """Rows that are in no file, because their columns cannot hold them: texts by column, and the cause."""


@dataclass(frozen=True, slots=True)
class CopyTaskResult:
    """Results in the order of the task's `parts`; `seconds` is the duration of the task."""

    parts: tuple[PartResult, ...]
    seconds: float


def copy_task(open_source: OpenSource, decode: Decode, task: CopyTask) -> CopyTaskResult:
    """Read every part of `task`. A fault of one part is returned in its result; it is not raised, and does not affect the other parts."""
    if read_pace(_pace_of(task)).give_way:
        return at_lower_priority(lambda: _copy(open_source, decode, task))
    return _copy(open_source, decode, task)


def _copy(open_source: OpenSource, decode: Decode, task: CopyTask) -> CopyTaskResult:
    started = time.perf_counter()
    try:
        source = open_source(task.connection)
    except EngineFault as fault:
        return CopyTaskResult(tuple(_failed(part, fault) for part in task.parts), time.perf_counter() - started)
    with closing(source):
        parts = tuple(_read_part(task, part, source, decode) for part in task.parts)
    return CopyTaskResult(parts, time.perf_counter() - started)


def _pace_of(task: CopyTask) -> Path | None:
    return None if task.pace is None else Path(task.pace)


def decoded(
    pieces: Iterable[bytes], schema: TableSchema, decode: Decode, batch_bytes: int
) -> Iterator[tuple[Any, int]]:
    """Yields record batches of about `batch_bytes` of COPY text, each with the size of its text in bytes."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        if size and size + len(piece) > batch_bytes:
            yield decode(b"".join(held), schema), size
            held, size = [], 0
        held.append(piece)
        size += len(piece)
    if size:
        yield decode(b"".join(held), schema), size


def decoded_but_refused(
    lines: bytes, schema: TableSchema, decode: Decode, refused: list[tuple[Texts, RefusedCause]], most: int
) -> list[Any]:
    """Decode the lines into record batches. Lines that cannot be decoded are found by bisection and added to `refused`.

    Raises the EngineFault of `decode` if more than `most` lines would be refused, or for any other fault.
    """
    try:
        return [decode(lines, schema)]
    except EngineFault as fault:
        if fault.kind is not FaultKind.VALUE_OUT_OF_DOMAIN or len(refused) >= most:
            raise
        each = lines.splitlines(keepends=True)
        if len(each) == 1:
            refused.append((copy_values(lines), RefusedCause(fault.kind.value, fault.detail)))
            return []
    halves = (b"".join(each[: len(each) // 2]), b"".join(each[len(each) // 2 :]))
    return [batch for half in halves for batch in decoded_but_refused(half, schema, decode, refused, most)]


def copy_values(line: bytes) -> Texts:
    """The values of one line of COPY's text format; None for NULL."""
    return tuple(None if text == b"\\N" else _unescaped(text) for text in line.removesuffix(b"\n").split(b"\t"))


def _unescaped(text: bytes) -> str:
    plain = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)
    return plain.decode("utf-8", "backslashreplace")


def _read_part(task: CopyTask, part: SplitPart, source: Source, decode: Decode) -> PartResult:
    files = _PartFiles(Path(task.staging), f"e{task.epoch}-{part.table}-c{part.number}-a{part.attempt}", task.limits)
    read_bytes = 0
    refused: list[tuple[Texts, RefusedCause]] = []

    def decode_part(lines: bytes, schema: TableSchema) -> list[Any]:
        return decoded_but_refused(lines, schema, decode, refused, part.set_aside)

    try:
        with closing(files):
            pacer = RateLimiter(lambda: read_pace(_pace_of(task)), task.readers)
            pieces = pacer.paced(source.copies.read_split(part.split, task.snapshot))
            for batches, size in decoded(pieces, part.schema, decode_part, task.limits.batch_bytes):
                for batch in batches:
                    files.write(batch)
                read_bytes += size
    except EngineFault as fault:
        files.remove()
        return _failed(part, fault)
    except OSError as error:
        files.remove()
        return _failed(part, staging_fault(error, task.staging))
    except Exception as error:
        # A defect, or a value that breaks the decoder. Only this table fails, not those that share the task.
        files.remove()
        detail = f"reading the rows failed with {type(error).__name__}"
        return _failed(part, EngineFault(FaultKind.INTERNAL, str(part.table), detail))
    staged = tuple(files.staged)
    rows = sum(file.rows for file in staged)
    return PartResult(part.table, part.number, part.attempt, staged, rows, read_bytes, refused=tuple(refused))


def staging_fault(error: OSError, folder: str) -> EngineFault:
    """The fault for an error in the staging folder. The folder is on the queue's disk, so a full disk is QUEUE_DISK_FULL."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    kind = FaultKind.QUEUE_DISK_FULL if full else FaultKind.COPY_FAILED
    fault = EngineFault(kind, folder, f"cannot write or read copied rows: {error.strerror or type(error).__name__}")
    fault.__cause__ = error
    return fault


def _failed(part: SplitPart, fault: EngineFault) -> PartResult:
    return PartResult(part.table, part.number, part.attempt, fault=TableFault(fault.kind.value, fault.detail))


class _PartFiles:
    """The files of one attempt at one split."""

    def __init__(self, folder: Path, stem: str, limits: ReadLimits) -> None:
        self._folder = folder
        self._stem = stem
        self._limits = limits
        self._sink: Any = None
        self._writer: Any = None
        self._path = ""
        self._rows = 0
        self.staged: list[StagedFile] = []

    def write(self, batch: Any) -> None:
        if self._writer is None:
            self._open(batch.schema)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        if self._sink.tell() >= self._limits.file_bytes:
            self.close()

    def _open(self, schema: Any) -> None:
        self._path = str(self._folder / f"{self._stem}-{len(self.staged)}.arrows")
        self._sink = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._rows = 0

    def close(self) -> None:
        """Finish the current file; the next `write` starts another one."""
        if self._writer is None:
            return
        writer, sink = self._writer, self._sink
        self._writer = self._sink = None
        self.staged.append(StagedFile(self._path, self._rows))
        try:
            writer.close()
        finally:
            sink.close()

    def remove(self) -> None:
        """Delete the files of a failed attempt."""
        for file in self.staged:
            Path(file.path).unlink(missing_ok=True)
        self.staged.clear()
