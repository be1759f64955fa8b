"""The process that uses a driver: what the engine asks comes through standard input, answers leave through standard output.

A driver is native code of others: it may end its process, or wait for ever. Then this process ends, and not the engine's.

A request is a line of JSON, and so is its answer: what was found, or a fault. After the answer to a request of rows follow the rows as a
stream of Arrow, and after them one more line: how many there were, or the fault that ended them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import IO, Any

import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.sources.arrow_rows.driver import Driver
from engine.sources.arrow_rows.forms import Form, sent_batch, sent_schema

_MOST_DETAIL = 400
"""Characters of a driver's message that are shown."""
_K = FaultKind


class _Session:
    """Answers requests, one after another."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._driver: Driver | None = None
        self._hidden: list[str] = []

    def answer(self, request: Mapping[str, Any]) -> None:
        try:
            if request["op"] == "rows":
                self._rows(request)
            else:
                self._say(getattr(self, f"_{request['op']}")(request))
        except EngineFault as fault:
            self._say({"fault": [fault.kind.value, self._masked(fault.detail)]})
        except BrokenPipeError:
            raise
        except Exception as error:
            self._say({"fault": [_K.SOURCE_UNREACHABLE.value, self._masked(f"{type(error).__name__}: {error}")]})

    def _say(self, found: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(found).encode() + b"\n")
        self._out.flush()

    def _masked(self, text: str) -> str:
        """A driver's message without secrets, in one line."""
        for hidden in self._hidden:
            text = text.replace(hidden, "***")
        text = " ".join(text.split())
        return text if len(text) <= _MOST_DETAIL else f"{text[:_MOST_DETAIL]} …"

    def _open(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._hidden = sorted(request["hidden"], key=len, reverse=True)
        self._driver = resolve_name(request["driver"])(request["settings"], request["secrets"])
        return {}

    @property
    def _opened(self) -> Driver:
        if self._driver is None:
            raise EngineFault(_K.SOURCE_UNREACHABLE, "", "the driver has no session")
        return self._driver

    def _check(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        del request
        self._opened.check()
        return {}

    def _tables(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        names = request["names"]
        if request["fresh"]:
            self._opened.reopen()
        found = self._opened.tables(None if names is None else {(schema, name) for schema, name in names})
        return {
            "tables": [
                [*name, [[c, shown, form.read, form.text] for c, shown, form in one.columns], one.key, one.problem]
                for name, one in found.items()
            ]
        }

    def _rows(self, request: Mapping[str, Any]) -> None:
        name = (request["schema"], request["name"])
        wanted = [(read, text) for read, text in request["forms"]]
        forms, batches = self._started(name, request["columns"], wanted)
        self._say({})
        count = 0
        with pa.ipc.new_stream(self._out, sent_schema(forms)) as stream:
            fault = None
            try:
                for batch in batches:
                    stream.write_batch(sent_batch(batch, forms))
                    count += batch.num_rows
            except BrokenPipeError:
                raise
            except Exception as error:
                fault = self._fault(error, begun=True)
        self._say({"rows": count} if fault is None else {"fault": [fault.kind.value, fault.detail]})

    def _started(
        self, name: tuple[str, str], columns: list[str], wanted: list[tuple[str, str | None]]
    ) -> tuple[list[Form], Iterator[Any]]:
        """The statement's batches, and their forms. Raises EngineFault(TABLE_STRUCTURE_CHANGED) if the forms are others than wanted."""
        try:
            found = self._opened.rows(name, columns)
        except EngineFault:
            raise
        except Exception as error:
            fault = self._fault(error)
            if fault.kind is _K.INTERNAL and name not in self._opened.tables({name}):
                raise EngineFault(_K.TABLE_MISSING, "", "the table is gone") from error
            raise fault from error
        forms, batches = found
        if [(form.read, form.text) for form in forms] != wanted:
            raise EngineFault(_K.TABLE_STRUCTURE_CHANGED, "", "the types of its columns were changed")
        return forms, batches

    def _fault(self, error: Exception, *, begun: bool = False) -> EngineFault:
        """For an error of a read. Its text is not shown: it may contain values. `begun`: rows were read before."""
        what = f"the driver cannot read the table ({type(error).__name__})"
        if isinstance(error, EngineFault):
            return error
        try:
            self._opened.check()
        except Exception:
            return EngineFault(_K.SOURCE_UNREACHABLE, "", what)
        if begun or isinstance(error, pa.ArrowInvalid):
            what = f"a value is longer than the connection's limit, or cannot be held exactly ({type(error).__name__})"
            return EngineFault(_K.VALUE_OUT_OF_DOMAIN, "", what)
        return EngineFault(_K.INTERNAL, "", what)


def _end_with_engine() -> None:
    """End this process when the engine closes standard input, in any way, also while a driver waits."""
    watched = select.poll()
    watched.register(0, 0)

    def wait() -> None:
        watched.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Answer until the engine ends. What drivers print goes nowhere: it may contain secrets."""
    out = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    requests = os.fdopen(os.dup(0), "rb")
    _end_with_engine()
    session = _Session(out)
    try:
        for line in iter(requests.readline, b""):
            session.answer(json.loads(line))
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
