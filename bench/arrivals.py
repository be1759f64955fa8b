"""When rows become visible on PostgreSQL's own subscriber: a trigger there sends a notification."""

from __future__ import annotations

import threading
from time import perf_counter

from bench.workload import DATABASE
from server.demo.embedded import EmbeddedPostgres

_TELL = (
    "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM pg_notify('marks', NEW.id::text); RETURN NULL; END $$",
    "CREATE TRIGGER tell AFTER INSERT ON marks FOR EACH ROW EXECUTE FUNCTION tell()",
    "ALTER TABLE marks ENABLE ALWAYS TRIGGER tell",
)


class Arrivals:
    """Listens for notifications from `start` to `close`. A notification arrives with the commit that makes the row visible."""

    def __init__(self, copy: EmbeddedPostgres) -> None:
        for statement in _TELL:
            copy.execute(statement, database=DATABASE)
        self._seen: dict[int, float] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._connection = copy.connect(DATABASE)
        self._connection.execute("LISTEN marks")
        self._thread = threading.Thread(target=self._listen, name="arrivals", daemon=True)
        self._thread.start()

    def wait(self, number: int, timeout_s: float) -> float:
        """The time at which the row of this number arrived, by perf_counter. TimeoutError if it did not within the timeout."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._seen, timeout_s):
                raise TimeoutError(f"row {number} did not arrive")
            return self._seen[number]

    def close(self) -> None:
        self._closing = True
        self._thread.join(5)
        self._connection.close()

    def _listen(self) -> None:
        while not self._closing:
            for notification in self._connection.notifies(timeout=0.5):
                with self._changed:
                    self._seen[int(notification.payload)] = perf_counter()
                    self._changed.notify_all()
