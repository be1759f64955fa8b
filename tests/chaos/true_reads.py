"""Reads are true while processes are killed: every answered read is compared with what its session has committed.

A PostgreSQL source has transactions at a steady rate, and sessions that read the copy through REST, `penstock.client`, psycopg over the SQL
endpoint and Arrow Flight SQL. A session commits numbers of its own, waits for its commit, and reads: the answer must contain exactly the
numbers that it committed up to the position that the answer claims, none that was rolled back or deleted, a sum over two tables that never
changes, and a position that is neither before the commit nor before that of an earlier read. At fixed intervals a process is
killed, each kind in turn; Penstock's own supervisor starts it again. An outage lasts from a kill until every session has read a
later commit, and only meanwhile may anything answer with an error. At the end source and copy are compared row by row.

Run as `python -m tests.chaos.true_reads --seconds 3600 --rate 500 --kill-every 300`. Prints a summary, writes `true-reads.json`, and
exits with 1 at an untrue read, an error outside outages, an outage without end, or a difference; the evidence is then in the same folder.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from server.cli.client import Document, NoServerError, ProblemError
from server.processes.ports import free_port
from tests.bench.proof_command import add_common_options
from tests.chaos import reading_session, steady_writes
from tests.chaos.doors import makers
from tests.chaos.failpoint_kills import NothingToKillError
from tests.chaos.killer import BY_TURN, Killer, Kind
from tests.chaos.outages import Outages
from tests.chaos.reading_session import Session
from tests.chaos.steady_writes import SteadyWrites
from tests.fixtures.rig import Rig

TABLES = (*steady_writes.TABLES, reading_session.TABLE)
RECOVERY_MOST_S = 180.0
_FOUND_S = 60.0
_STOP_S = 120.0
_LOOK_S = 0.2
_SETTLED_S = 300.0
_FILE = "true-reads.json"
_EVIDENCE = "true-reads-evidence.json"


class TrueReads:
    """One run. `found` is what was wrong."""

    def __init__(self, rig: Rig, ports: tuple[int, int], options: argparse.Namespace) -> None:
        self.found: list[Document] = []
        self._rig = rig
        self._options = options
        kinds = makers(rig, *ports)
        doors = [door for door in kinds for _ in range(options.sessions)]
        self.outages = Outages([f"{door} {number}" for number, door in enumerate(doors)])
        self.sessions = [
            Session(number, door, rig.connect, kinds[door], self.outages, seed=options.seed)
            for number, door in enumerate(doors)
        ]
        self._killer = Killer(rig, random.Random(options.seed))
        self._pause = threading.Event()
        self._uncounted: Counter[str] = Counter()
        self._written: Document = {}
        self._seconds = 0.0
        self._verified: bool | None = None

    def go(self) -> None:
        """Run to the end, or until something untrue is found."""
        with self._rig.connect() as connection:
            connection.execute((steady_writes.DDL + reading_session.DDL).encode())
        self._rig.declare([{"schema": "public", "name": table} for table in TABLES])
        self._rig.wait_live(len(TABLES))
        began = monotonic()
        with SteadyWrites(self._rig, self._options.rate) as writes:
            for session in self.sessions:
                session.start()
            try:
                self._kill_by_turn(began)
                self._written = writes.document(monotonic() - began)
            finally:
                self._seconds = monotonic() - began
                self._stop_sessions()
        self._look()
        if not any("untrue" in each for each in self.found):
            self._compare()

    def document(self) -> Document:
        errors = sum((session.errors for session in self.sessions), Counter[str]())
        return {
            "passed": not self.found,
            "found": self.found,
            "seconds": round(self._seconds, 1),
            "load": self._written,
            "true_reads_after_wait": sum(session.waited for session in self.sessions),
            "true_reads_without_wait": sum(session.unwaited for session in self.sessions),
            "transactions_in_doubt": sum(session.in_doubt for session in self.sessions),
            "errors_in_outages": dict(sorted(errors.items())),
            "nothing_to_kill": dict(self._uncounted),
            **self.outages.document(),
            "compared_row_by_row": self._verified,
            "sessions": [session.document() for session in self.sessions],
        }

    def _kill_by_turn(self, began: float) -> None:
        kinds = self._options.kinds
        every, until = self._options.kill_every, began + self._options.seconds
        number, due = 0, began + every
        while not self._stopped():
            late = monotonic() - until
            if late > 0 and (all(session.waited for session in self.sessions) or late > RECOVERY_MOST_S):
                return
            if late > 0 or monotonic() < due:
                self._pause.wait(_LOOK_S)
                continue
            self._kill(kinds[number % len(kinds)])
            number, due = number + 1, due + every
            self._await_recovery()

    def _stopped(self) -> bool:
        return bool(self.found) or any(session.untrue or session.failure for session in self.sessions)

    def _kill(self, kind: Kind) -> None:
        deadline = monotonic() + _FOUND_S
        while True:
            self.outages.begin(kind, monotonic())
            try:
                what = self._killer.kill(kind)
            except NothingToKillError:
                self.outages.withdraw()
                if monotonic() > deadline:
                    self._uncounted[kind] += 1
                    return
                self._pause.wait(_LOOK_S)
            else:
                _say(f"killed: {kind} {json.dumps(what)}")
                return

    def _await_recovery(self) -> None:
        deadline = monotonic() + RECOVERY_MOST_S
        while not self.outages.wait_for_end(_LOOK_S):
            if self._stopped():
                return
            if monotonic() > deadline:
                self.found.append({"no recovery": self.outages.all[-1].document()})
                return
        if self.outages.all:
            _say(f"recovered: {json.dumps(self.outages.all[-1].document())}")

    def _stop_sessions(self) -> None:
        for session in self.sessions:
            session.ask_to_stop()
        for session in self.sessions:
            session.join(_STOP_S)

    def _look(self) -> None:
        for session in self.sessions:
            if session.failure is not None:
                told = "".join(traceback.format_exception(session.failure))
                self.found.append({"session": session.name, "failure": told})
            self.found += [{"untrue": each, "now": self._shown_now(session)} for each in session.untrue]
            self.found += [{"error outside outages": each} for each in session.unexcused]
            if not session.untrue and not session.waited:
                self.found.append({"session": session.name, "never read": dict(session.errors)})

    def _shown_now(self, session: Session) -> Document:
        """What source and copy show of a session after an untrue read."""
        sql = reading_session.READ.format(session.number)
        shown: Document = {"source": self._rig.postgres.execute(sql, database="work")[0]}
        try:
            answer = self._rig.api.post(f"{self._rig.path}/queries", {"sql": sql})
            shown |= {"copy": answer["rows"], "copy_position": answer["position"]}
        except (ProblemError, NoServerError) as error:
            shown["copy"] = str(error)
        return shown

    def _compare(self) -> None:
        """Compare each row of each table, by what this program reads from both, and by a verification."""
        waited = {"timeout_ms": round(_SETTLED_S * 1000)}
        self._rig.api.post(f"{self._rig.path}/freshness-waits", waited, timeout_s=_SETTLED_S + 10)
        for table in TABLES:
            sql = f"SELECT * FROM public.{table} ORDER BY 1, 2"
            source = [list(row) for row in self._rig.postgres.execute(sql, database="work")]
            body = {"sql": sql, "max_rows": len(source) + 1000}
            copy = self._rig.api.post(f"{self._rig.path}/queries", body)["rows"]
            if source != copy:
                self.found.append({"table": table, **_difference(source, copy)})
        self._verified, answer = self._rig.verify()
        if not self._verified:
            self.found.append({"verification": answer})


def _difference(source: list[Any], copy: list[Any]) -> Document:
    ours, theirs = {tuple(row) for row in source}, {tuple(row) for row in copy}
    return {
        "rows": [len(source), len(copy)],
        "missing": sorted(ours - theirs)[:20],
        "extra": sorted(theirs - ours)[:20],
    }


def summary(document: Document) -> str:
    """A few lines for people."""
    load = document["load"]
    lines = [
        f"{document['seconds']:.0f} s, {load.get('transactions', 0):,} transactions ({load.get('transactions_per_s', 0)}/s)",
        f"true reads: {document['true_reads_after_wait']:,} after a wait, {document['true_reads_without_wait']:,} without",
        f"kills: {len(document['kills'])}; transactions in doubt after a lost connection: {document['transactions_in_doubt']}",
    ]
    lines += [
        f"  recovery after {kind}: median {each['median']} s, most {each['most']} s of {each['count']}"
        for kind, each in document["recovery_s"].items()
    ]
    lines += [f"  error in an outage: {kind} ({count} times)" for kind, count in document["errors_in_outages"].items()]
    compared = {True: "equal", False: "DIFFERENT", None: "not compared"}[document["compared_row_by_row"]]
    lines.append(f"source and copy row by row: {compared}")
    lines.append("PASSED" if document["passed"] else f"FAILED: {json.dumps(document['found'][:3], default=str)[:2000]}")
    return "\n".join(lines)


def keep_evidence(folder: Path, document: Document, found: Sequence[Document]) -> Path:
    """Write the run, and what was found, to a folder; returns the file of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    if found:
        (folder / _EVIDENCE).write_text(json.dumps(list(found), indent=2, default=str) + "\n")
    file = folder / _FILE
    file.write_text(json.dumps(document, indent=2, default=str) + "\n")
    return file


def run(options: argparse.Namespace) -> tuple[Document, str]:
    """One run with a source, server, engine and copy of its own: its document, and the path of kept logs if something was found."""
    ports = free_port(), free_port()
    extra = {"PENSTOCK_SQL_PORT": str(ports[0]), "PENSTOCK_FLIGHT_PORT": str(ports[1])}
    made: TrueReads | None = None
    try:
        with Rig(durable=False, extra=extra, target_kind=options.target) as rig:
            made = TrueReads(rig, ports, options)
            made.go()
            # An exception makes the rig keep its logs and the copy.
            assert not made.found, "something was found"
    except Exception as error:
        if made is None:
            raise
        if not made.found:
            made.found.append({"failure": "".join(traceback.format_exception(error))})
        return made.document(), "; ".join(getattr(error, "__notes__", []))
    return made.document(), ""


def _say(line: str) -> None:
    sys.stderr.write(line[:500] + "\n")


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="true_reads", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=3600, help="duration, and at least until each session has read (3600)"
    )
    parser.add_argument(
        "--rate", type=float, default=500, help="transactions a second besides those of the sessions (500)"
    )
    parser.add_argument("--kill-every", type=float, default=300, help="seconds between kills (300)")
    parser.add_argument("--kinds", nargs="+", choices=BY_TURN, default=BY_TURN, help="what is killed, in this order")
    parser.add_argument("--sessions", type=int, default=3, help="sessions at each door (3)")
    parser.add_argument("--seed", type=int, default=1, help="of the sessions' pauses, rollbacks and kinds of reads (1)")
    add_common_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    document, kept = run(options)
    file = keep_evidence(options.out, document, document["found"])
    sys.stdout.write(f"{summary(document)}\n{file}\n")
    if kept:
        sys.stdout.write(f"{kept}\n")
    return 0 if document["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
