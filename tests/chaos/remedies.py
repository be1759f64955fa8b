"""Acts like an operator after a fault: reads the state, applies the remedy, waits."""

from __future__ import annotations

from collections.abc import Collection

from server.cli.client import Document, NoServerError, ProblemError
from tests.fixtures.rig import Rig

_SETTLED_S = 600.0
_WAIT_MS = 10_000
_UNENDED = frozenset({"queued", "running"})


class Remedies:
    """`settle` returns when everything follows the source again."""

    def __init__(self, rig: Rig, tables: int, remade: Collection[str] = ()) -> None:
        """`tables`: how many there are. `remade`: those that others change so that they are copied again, which announces nothing."""
        self._rig = rig
        self._tables = tables
        self._remade = remade
        self._announced: list[str] = []
        self._seen: set[tuple[str, str]] = set()

    def settle(self) -> list[str]:
        """Return when a wait for "now" over all tables is satisfied: what was announced until then, in order, each once a table.

        AssertionError where it does not come to that.
        """
        self._announced, self._seen = [], set()
        refused: list[str] = []

        def settled() -> bool:
            try:
                return self._step()
            except NoServerError as error:
                refused.append(str(error))
            except ProblemError as problem:
                refused.append(str(problem))
                if problem.status < 500 and problem.status not in {408, 409}:
                    raise
            return False

        try:
            self._rig.wait_until(settled, _SETTLED_S, "everything followed again")
        except AssertionError as error:
            raise AssertionError(f"{error}; announced {self._announced}; last refused {refused[-1:]}") from None
        return self._announced

    @property
    def whole(self) -> bool:
        """Whether all tables were copied again."""
        return any(each.startswith("failed") for each in self._announced)

    def _step(self) -> bool:
        subscription = self._rig.api.get(self._rig.path)
        if subscription["state"] == "failed":
            self._announce("failed", "", subscription)
            self._rig.api.post(f"{self._rig.path}/reloads")
            return False
        tables = list(self._rig.api.items(f"{self._rig.path}/tables"))
        for table in tables:
            if table["state"] == "parked":
                self._announce("parked", table["name"], table)
                self._rig.api.post(f"{self._rig.path}/tables/{table['id']}/reloads")
            elif table["state"] == "reloading" and table.get("code") and table["name"] not in self._remade:
                self._announce("reloading", table["name"], table)
        still = len(tables) == self._tables and all(table["state"] == "live" for table in tables)
        if subscription["state"] != "running" or not still or self._reloads():
            return False
        self._rig.api.post(
            f"{self._rig.path}/freshness-waits", {"timeout_ms": _WAIT_MS}, timeout_s=_WAIT_MS / 1000 + 10
        )
        return True

    def _announce(self, how: str, table: str, stands: Document) -> None:
        said = f"{how} {stands.get('code') or 'without a code'}"
        if (said, table) not in self._seen:
            self._seen.add((said, table))
            self._announced.append(said)

    def _reloads(self) -> bool:
        newest = self._rig.api.get(f"{self._rig.path}/reloads", page_size=20)["items"]
        return any(reload["state"] in _UNENDED for reload in newest)
