"""Reload of a large table under load, with kills of the engine: recorded chunks are not read again, and the copy equals the source.

A chunk is read in pieces; the source's statement log shows which ones. Run as `python -m tests.bench.reload --rows 5000000 --kills 3`.
Exit code 1 if a piece of a recorded chunk was read again, or if the copy does not equal the source at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from dataclasses import asdict, dataclass

from tests.fixtures.load import Load
from tests.fixtures.postgres import Session
from tests.fixtures.rig import Rig

CHUNKS = 12
_ROW_BYTES = 145
_PIECE = re.compile(r'statement: COPY \(SELECT .* FROM ONLY "public"\."orders"(.*)\) TO STDOUT')
_ABOVE = re.compile(r"\(\"id\"\) > \('(-?\d+)'\)")
_UPTO = re.compile(r"\(\"id\"\) <= \('(-?\d+)'\)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run. `pieces`: all pieces that were read; `again`: of these, those that had been read before, because their chunk was not
    recorded when the engine was killed; `recorded_again`: pieces read again although their chunk was recorded."""

    rows: int
    kills: list[str]
    resumed: list[str]
    pieces: int
    again: int
    recorded_again: int
    seconds: float
    equal: bool


class Changes(Load):
    """Small transactions that update, move, delete and insert rows of the whole table."""

    def __init__(self, rig: Rig, rows: int) -> None:
        super().__init__(rig.connect, 3, rest_s=0.02)
        self._rows = rows

    def transact(self, connection: Session) -> None:
        at, to = self.rng.randrange(1, self._rows), self.rng.randrange(1, self._rows)
        with connection.transaction():
            connection.execute("UPDATE orders SET total = total + 1 WHERE id BETWEEN %s AND %s", [at, at + 20])
            connection.execute("DELETE FROM orders WHERE id = %s", [to])
            connection.execute("UPDATE orders SET id = %s WHERE id = %s", [to, at])
            connection.execute("INSERT INTO orders VALUES (%s, 0, 'new') ON CONFLICT DO NOTHING", [at])


def pieces_read(rig: Rig) -> list[tuple[int, int | None]]:
    """Every piece that was read from the source: the key before it, and its last key (None: unbounded)."""
    found = []
    for line in rig.postgres.log_file.read_text(errors="replace").splitlines():
        match = _PIECE.search(line)
        if match and '("id")' in match[1]:
            above, upto = _ABOVE.search(match[1]), _UPTO.search(match[1])
            found.append((int(above[1]) if above else -(2**63), int(upto[1]) if upto else None))
    return found


def resumed(rig: Rig) -> list[str]:
    events = rig.api.items("/events")
    return [str(event["detail"]) for event in events if event["kind"] == "copy_resumed"]


def recorded_again(read: list[tuple[int, int | None]], kills: list[int]) -> int:
    """Number of pieces read again although their chunk was recorded: those before the first key that the next engine read.

    `kills`: for each kill, how many elements of `read` were read before it.
    """
    found = 0
    for number, place in enumerate(kills):
        until = kills[number + 1] if number + 1 < len(kills) else len(read)
        later = [above for above, _ in read[place:]]
        went_on = min((above for above, _ in read[place:until]), default=-(2**63))
        found += sum(above < went_on for above in later)
    return found


def kill_at(rig: Rig, percent: float) -> tuple[str, int]:
    """Kill the engine at this percentage and wait until the copy is resumed. Returns a text, and how many pieces were read before."""

    def reached() -> bool:
        copied = next(iter(rig.api.items(f"{rig.path}/tables")))["copied"]
        return copied is not None and percent <= float(copied["percent"] or 0) < 100

    rig.wait_until(reached, 3600, f"{percent} % were copied")
    pid = rig.running.supervisor.pid("engine")
    if pid is None:
        raise AssertionError("the engine is away")
    before = len(resumed(rig))
    os.kill(pid, signal.SIGKILL)
    asked = len(pieces_read(rig))
    rig.wait_until(lambda: len(resumed(rig)) > before, 300, "the copy went on")
    return f"at {percent:.0f} %", asked


def run(rows: int, kills: int, target: str) -> Outcome:
    chunk = max(1 << 16, rows * _ROW_BYTES // CHUNKS)
    extra = {"PENSTOCK_COPY_STRETCH_BYTES": str(chunk), "PENSTOCK_COPY_CHUNK_BYTES": str(max(1 << 20, chunk // 4))}
    source = {"log_statement": "'all'", "max_wal_size": "'4GB'"}
    with Rig(durable=False, settings=source, extra=extra, target_kind=target) as rig:
        with rig.connect() as connection:
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2), note text)")
            connection.execute(
                "INSERT INTO orders SELECT i, i %% 1000, repeat(md5(i::text), 3) FROM generate_series(1, %s) i", [rows]
            )
            connection.execute("ANALYZE orders")
        rig.declare([{"schema": "public", "name": "orders"}])
        rig.wait_live(1, 3600)
        table = next(iter(rig.api.items(f"{rig.path}/tables")))
        first = len(pieces_read(rig))
        began = time.monotonic()
        killed: list[tuple[str, int]] = []
        with Changes(rig, rows):
            rig.api.post(f"{rig.path}/tables/{table['id']}/reloads", {})
            for number in range(kills):
                killed.append(kill_at(rig, 100 * (number + 1) / (kills + 2)))
            rig.wait_live(1, 3600)
            seconds = time.monotonic() - began
        told = resumed(rig)
        read = pieces_read(rig)[first:]
        seen: dict[int, int] = {}
        for above, _ in read:
            seen[above] = seen.get(above, 0) + 1
        again = sum(count - 1 for count in seen.values())
        wrong = recorded_again(read, [asked - first for _, asked in killed])
        equal, _ = rig.verify(1800)
        return Outcome(rows, [what for what, _ in killed], told, len(read), again, wrong, round(seconds, 1), equal)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--target", choices=["duckdb", "postgres"], default="duckdb")
    given = parser.parse_args()
    outcome = run(given.rows, given.kills, given.target)
    print(json.dumps(asdict(outcome), indent=2))
    return 0 if outcome.equal and not outcome.recorded_again else 1


if __name__ == "__main__":
    sys.exit(main())
