"""The load at a steady rate until SIGINT: `python -m bench.tpcc CONNINFO --rate 200`. Prints its counts as JSON.

Exit code 1 where it ended by itself, with the reason on standard error.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading

import psycopg

from bench.tpcc.driver import Driver, TpccError
from bench.tpcc.schema import Connection

_LOOK_EVERY_S = 0.2


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.tpcc", description=__doc__)
    parser.add_argument("conninfo", help="connection string of a loaded database")
    parser.add_argument("--rate", type=float, required=True, help="transactions a second")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    def connect() -> Connection:
        return psycopg.connect(options.conninfo, autocommit=True)

    stopping = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    driver = Driver(connect, clients=options.clients, seed=options.seed, rate=options.rate)
    try:
        driver.start()
        while driver.failure is None and not stopping.wait(_LOOK_EVERY_S):
            pass
        counts = driver.stop()
    except (TpccError, psycopg.Error) as error:
        # Only the first line: what follows in PostgreSQL's messages may be values of rows.
        cause = error.__cause__ or error
        sys.stderr.write(f"{type(cause).__name__}: {str(cause).partition(chr(10))[0]}\n")
        return 1
    sys.stdout.write(json.dumps(counts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
