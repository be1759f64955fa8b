"""The engine's end of a driver's process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.platform.child_processes import how_it_ended

_K = FaultKind
_ANSWER_S = 120.0
"""Seconds that a driver has to open a session, or to list tables. Not measured."""
_IDLE_S = 15.0
"""Seconds without a request after which the process of a catalog's session ends. Not measured."""
_END_S = 10.0
"""Seconds until a process that was killed has to be gone."""


@dataclass(frozen=True, slots=True)
class DriverCall:
    """How a driver is opened. `reference`: its `Opener`, as `module:name`; `settings`, `secrets`: of the connection. Never printed."""

    reference: str
    settings: Mapping[str, Any]
    secrets: Mapping[str, str]
    hidden: tuple[str, ...] = ()
    """Texts that no message may show."""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """`shown`: the type as users read it; `read`, `text`: as of `Form`."""

    name: str
    shown: str
    read: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as the driver lists it."""

    columns: tuple[FoundColumn, ...]
    key: tuple[str, ...]
    problem: str | None


class DriverProcess:
    """A driver's session in a process of its own. Used by one thread at a time; `kill` may be called from any."""

    def __init__(self, call: DriverCall, subject: str) -> None:
        self._subject = subject
        self._killed: FaultKind | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.sources.arrow_rows.program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._ask(
                {
                    "op": "open",
                    "driver": call.reference,
                    "settings": dict(call.settings),
                    "secrets": dict(call.secrets),
                    "hidden": list(call.hidden),
                }
            )
        except BaseException:
            self.close()
            raise

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it, and what it answers."""
        self._process.kill()

    def close(self) -> None:
        """Idempotent."""
        self._process.kill()
        self._process.wait(_END_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def check(self) -> None:
        """Open another session. Raises EngineFault(SOURCE_UNREACHABLE)."""
        self._ask({"op": "check"})

    def tables(self, names: Collection[TableName] | None, *, fresh: bool = False) -> dict[TableName, FoundTable]:
        """These tables, or all. `fresh`: in another session than before."""
        listed = None if names is None else [[name.schema, name.name] for name in names]
        answer = self._ask({"op": "tables", "names": listed, "fresh": fresh})
        return {
            TableName(schema, name): FoundTable(tuple(FoundColumn(*each) for each in columns), tuple(key), problem)
            for schema, name, columns, key, problem in answer["tables"]
        }

    @contextmanager
    def rows(self, table: TableName, columns: Sequence[FoundColumn], limit_s: float) -> Iterator[Any]:
        """All rows, as a stream of Arrow with a column for each of these, for use in the block. A block that read all of it ends with the
        fault that ended the rows.

        Raises EngineFault: SOURCE_TIMEOUT after so many seconds, SOURCE_UNREACHABLE, TABLE_STRUCTURE_CHANGED, and others.
        """
        forms = [(column.read, column.text) for column in columns]
        request = {"op": "rows", "schema": table.schema, "name": table.name, "columns": [c.name for c in columns]}
        with self._limited(limit_s):
            self._ask({**request, "forms": forms}, str(table))
            try:
                counted = _Counted(self._process.stdout)
            except (pa.ArrowException, OSError) as error:
                raise self._gone(str(table)) from error
            try:
                yield counted.reader
            except Exception as error:
                if counted.broken:
                    raise self._gone(str(table)) from error
                raise
            if self._answer(str(table)).get("rows") != counted.rows:
                raise EngineFault(_K.SOURCE_UNREACHABLE, str(table), "rows of the driver's process were lost")

    @contextmanager
    def _limited(self, limit_s: float) -> Iterator[None]:
        """Kill it if the block takes longer."""
        timer = threading.Timer(limit_s, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _expire(self) -> None:
        self._killed = _K.SOURCE_TIMEOUT
        self.kill()

    def _ask(self, request: Mapping[str, Any], subject: str = "") -> Mapping[str, Any]:
        pipe = self._process.stdin
        with self._limited(_ANSWER_S) if request["op"] != "rows" else nullcontext():
            try:
                if pipe is not None:
                    pipe.write(json.dumps(request).encode() + b"\n")
                    pipe.flush()
            except OSError as error:
                raise self._gone(subject) from error
            return self._answer(subject)

    def _answer(self, subject: str) -> Mapping[str, Any]:
        pipe = self._process.stdout
        line = b"" if pipe is None else pipe.readline()
        if not line.endswith(b"\n"):
            raise self._gone(subject)
        found: Mapping[str, Any] = json.loads(line)
        if "fault" in found:
            kind, detail = found["fault"]
            raise EngineFault(FaultKind(kind), subject or self._subject, detail)
        return found

    def _gone(self, subject: str) -> EngineFault:
        about = subject or self._subject
        if self._killed is not None:
            return EngineFault(self._killed, about, "the driver did not answer in time")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        ended = how_it_ended(self._process.returncode)
        # A driver that a table's values end would end with every cycle, and other tables would never be read.
        kind = _K.INTERNAL if subject and self._process.returncode != 0 else _K.SOURCE_UNREACHABLE
        return EngineFault(kind, about, f"the process of the driver {ended}")


class _Counted:
    """A stream of Arrow whose rows are counted. `broken`: it ended within a batch."""

    def __init__(self, pipe: Any) -> None:
        stream = pa.ipc.open_stream(pipe)
        self.rows = 0
        self.broken = False
        self.reader = pa.RecordBatchReader.from_batches(stream.schema, self._batches(stream))

    def _batches(self, stream: Any) -> Iterator[Any]:
        try:
            for batch in stream:
                self.rows += batch.num_rows
                yield batch
        except (pa.ArrowException, OSError):
            self.broken = True
            raise


class KeptProcess:
    """A driver's process for short requests, which ends when there was none for a while. May be used by any thread."""

    def __init__(self, call: DriverCall, subject: str) -> None:
        self._call = call
        self._subject = subject
        self._lock = threading.Lock()
        self._process: DriverProcess | None = None
        self._timer: threading.Timer | None = None

    @contextmanager
    def use(self) -> Iterator[DriverProcess]:
        """Its process. An error of the block ends it."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._process is not None and not self._process.lives:
                self._end()
            found = self._process = self._process or DriverProcess(self._call, self._subject)
            try:
                yield found
            except BaseException:
                self._end()
                raise
            self._timer = threading.Timer(_IDLE_S, self.close)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """End the process; the next use begins another one."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
