"""Workloads of many small transactions: `tpcb` and variants on its tables, `inserts`, `hot-rows` and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bench.pgbench import PgbenchWorkload
from bench.workload import Connection, Mode, Size, Table

_TPCB_TABLES = """
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))
"""


def _run(connection: Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.execute(statement.encode())


class Tpcb(PgbenchWorkload):
    """pgbench's built-in transaction."""

    name = "tpcb"
    description = "pgbench's TPC-B-like transactions: three updates and an insert over four tables"
    script = ""
    changes = 4
    full = Size(200_000, 20, rounds=5, rate=1000)
    quick = Size(10_000, 2, rounds=1, seconds=10)

    def tables(self) -> tuple[Table, ...]:
        keyed = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers")
        return (*map(Table, keyed), Table("pgbench_history", insert_only=True))

    def create(self, connection: Connection, scale: int) -> None:
        _run(connection, _TPCB_TABLES)
        rows = (("branches", "i, 0, ''", 1), ("tellers", "i, (i - 1) / 10 + 1, 0, ''", 10))
        for name, values, each in (*rows, ("accounts", "i, (i - 1) / 100000 + 1, 0, ''", 100_000)):
            connection.execute(
                f"INSERT INTO pgbench_{name} SELECT {values} FROM generate_series(1, {each * scale}) i".encode()
            )
        connection.execute("VACUUM ANALYZE")


class Freshness(Tpcb):
    """Waits under a load below the machine's limit, as in production use."""

    name = "freshness"
    description = "how long after its acknowledgement a commit can be read, at a steady rate of tpcb transactions"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.SUSTAINED,)
    limits_ms: ClassVar[Mapping[str, float]] = {"p50_ms": 200.0, "p99_ms": 1000.0}
    full = Size(0, 5, rounds=1, seconds=60, rate=500)
    quick = Size(0, 2, rounds=1, seconds=10, rate=500)


class Idle(Tpcb):
    """Nothing happens."""

    name = "idle"
    description = "CPU and memory while nothing happens"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.IDLE,)
    full = Size(0, 1, rounds=1, seconds=600)
    quick = Size(0, 1, rounds=1, seconds=10)


class CaptureOnly(Tpcb):
    """The log reader in isolation."""

    name = "capture-only"
    description = "the log reader alone on a tpcb backlog: all of it landed in segments, nothing applied"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.CAPTURE,)
    full = Size(100_000, 20)
    quick = Size(10_000, 2, rounds=1)


class Inserts(PgbenchWorkload):
    """Growing tables, as event logs are."""

    name = "inserts"
    description = "transactions of four inserted rows into one growing table"
    changes = 4
    full = Size(100_000, 1)
    quick = Size(10_000, 1, rounds=1, seconds=10)
    script = (
        "\\set device random(1, 100000)\n\\set kind random(1, 50)\n"
        "INSERT INTO readings (device, kind, taken, level, note) SELECT :device, :kind, now(), :kind * 0.25 + n,"
        " md5(:device::text) FROM generate_series(1, 4) n;\n"
    )

    def tables(self) -> tuple[Table, ...]:
        return (Table("readings"),)

    def create(self, connection: Connection, scale: int) -> None:
        connection.execute(
            "CREATE TABLE readings (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, device int NOT NULL,"
            " kind smallint NOT NULL, taken timestamptz NOT NULL, level numeric(12, 3), note text)"
        )


class HotRows(PgbenchWorkload):
    """No two of its transactions can be applied in parallel."""

    name = "hot-rows"
    description = "transactions that all update the same few rows of one table"
    changes = 4
    clients = 4
    full = Size(100_000, 1, rounds=5)
    quick = Size(10_000, 1, rounds=1, seconds=10)
    rows: ClassVar[int] = 10
    # Rows are locked in key order, so that two transactions never deadlock.
    script = "\\set first random(1, 7)\nBEGIN;\n" + (
        "".join(f"UPDATE hot SET hits = hits + 1, touched = now() WHERE id = :first + {n};\n" for n in range(4))
        + "END;\n"
    )

    def tables(self) -> tuple[Table, ...]:
        return (Table("hot"),)

    def create(self, connection: Connection, scale: int) -> None:
        _create_hot(connection, "hot", self.rows)


class HotRowsMany(PgbenchWorkload):
    """Chains of dependent transactions over several tables."""

    name = "hot-rows-many"
    description = "transactions that all update the same few rows of eight tables, four tables each"
    changes = 4
    clients = 4
    protocol = "simple"
    """A pgbench variable for part of a table's name, which cannot be a parameter."""
    full = Size(100_000, 1, rounds=5)
    quick = Size(10_000, 1, rounds=1, seconds=10)
    script = "\\set row random(1, 4)\n" + "".join(f"\\set t{n} random({2 * n + 1}, {2 * n + 2})\n" for n in range(4))
    script += "BEGIN;\n"
    script += "".join(f"UPDATE hot_:t{n} SET hits = hits + 1, touched = now() WHERE id = :row;\n" for n in range(4))
    script += "END;\n"

    def tables(self) -> tuple[Table, ...]:
        return tuple(Table(f"hot_{number}") for number in range(1, 9))

    def create(self, connection: Connection, scale: int) -> None:
        for table in self.tables():
            _create_hot(connection, table.name, 4)


def _create_hot(connection: Connection, name: str, rows: int) -> None:
    connection.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, hits bigint NOT NULL, touched timestamptz, label text)"
        " WITH (fillfactor = 20)".encode()
    )
    connection.execute(f"INSERT INTO {name} SELECT i, 0, now(), 'row ' || i FROM generate_series(1, {rows}) i".encode())


class WideRows(PgbenchWorkload):
    """Much log volume per row."""

    name = "wide-rows"
    description = "rows of 62 columns and about 1.5 kB: two inserts and two updates a transaction"
    modes: ClassVar[tuple[Mode, ...]] = (*PgbenchWorkload.modes, Mode.CAPTURES)
    changes = 4
    clients = 4
    full = Size(50_000, 20)
    quick = Size(4_000, 2, rounds=1, seconds=10)
    script = (
        "\\set first random(1, :rows / 2) * 2 - 1\n\\set value random(1, 1000000)\nBEGIN;\n"
        "INSERT INTO wide ({columns}) SELECT {values} FROM generate_series(1, 2) n;\n"
        "UPDATE wide SET i1 = i1 + 1, t1 = md5(:value::text), n1 = :value WHERE id IN (:first, :first + 1);\n"
        "END;\n"
    )
    rows: ClassVar[int] = 1000

    def tables(self) -> tuple[Table, ...]:
        return (Table("wide"),)

    def create(self, connection: Connection, scale: int) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in _wide_columns())
        connection.execute(
            f"CREATE TABLE wide (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {columns})".encode()
        )
        connection.execute(
            f"INSERT INTO wide ({_names()}) SELECT {_values('n')} FROM generate_series(1, {self.rows * scale}) n".encode()
        )


def _wide_columns() -> list[tuple[str, str]]:
    kinds = (("i", "int", 20), ("n", "numeric(14, 2)", 10), ("s", "timestamptz", 10), ("b", "boolean", 5))
    texts = (("t", "text", 15), ("big", "text", 1))
    return [(f"{letter}{number}", kind) for letter, kind, count in (*kinds, *texts) for number in range(1, count + 1)]


def _names() -> str:
    return ", ".join(name for name, _ in _wide_columns())


def _values(seed: str) -> str:
    """A SELECT list for all columns, from an integer expression."""
    of = {
        "int": "({0} * {1}) % 100003",
        "numeric(14, 2)": "({0} % 99991) / {1}.0",
        "timestamptz": "now() - ({0} % 86400) * interval '{1} s'",
        "boolean": "({0} + {1}) % 2 = 0",
        "text": "md5(({0} + {1})::text)",
    }
    parts = [of[kind].format(seed, number) for number, (_, kind) in enumerate(_wide_columns()[:-1], start=1)]
    return ", ".join([*parts, f"repeat(md5(({seed})::text), 16)"])


WideRows.script = (
    WideRows.script.replace("{columns}", _names())
    .replace("{values}", _values("(:value + n)"))
    .replace(":rows", str(WideRows.rows))
)
