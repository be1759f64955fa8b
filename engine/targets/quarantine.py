"""Applies changes to a table with quarantined rows: table and quarantine together contain each row once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.quarantine import RefusedCause, RefusedRow, RefusedState, SetAside, Texts
from engine.model.schema import KeyMode, TableSchema
from engine.targets.arrow_rows import joined, rows_of
from engine.targets.quarantined_rows import (
    DecodeText,
    Origin,
    key_of,
    lifted,
    refused_row,
    same_form,
    texts_of,
    typed,
    typed_one,
)
from engine.targets.sql_tables import SqlTables


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table of the subscription, where it is on the target, and its structure there."""

    table: TableId
    place: TableName
    schema: TableSchema


class RowQuarantine:
    """One table in one transaction. The quarantined rows after it are in `rows`."""

    def __init__(
        self, tables: SqlTables, decode: DecodeText, at: TableAt, standing: Sequence[RefusedRow], most: int
    ) -> None:
        """`standing`: rows that are quarantined already. `most`: how many rows may be quarantined."""
        self._most = most
        self._tables = tables
        self._decode = decode
        self._table, self._place, self._schema = at.table, at.place, at.schema
        self._keys = [f"k{j}" for j in range(len(at.schema.key))]
        self._columns = [f"c{i}" for i in range(len(at.schema.columns))]
        self.before = {row.row: row for row in standing}
        self.rows = {row.row: row for row in standing}
        self.fresh: list[RefusedRow] = []
        self._by_key = {row.key: row.row for row in standing if row.key}

    def change(self, changes: Sequence[TableChanges], origin: Origin) -> None:
        """Apply net changes, one slice after another."""
        for piece in sorted({change.piece for change in changes}):
            self._change_piece([change for change in changes if change.piece == piece], origin)

    def keep_refused(self, changes: Sequence[TableChanges], origin: Origin) -> None:
        """Only store the rows that their columns cannot hold. Reads the table, and changes nothing."""
        for piece in sorted({change.piece for change in changes}):
            refused = joined([change.refused for change in changes if change.piece == piece])
            if refused is not None:
                self._keep(refused, {}, origin, strict=False)

    def result(self) -> SetAside:
        """The effect. Raises EngineFault if there are more quarantined rows than allowed: with the row's own cause if none is allowed."""
        most = self._most
        fresh = [row for row in self.fresh if row.row in self.rows]
        if fresh and not most:
            raise EngineFault(FaultKind(fresh[0].cause.code), self._table, fresh[0].cause.detail)
        if fresh and len(self.rows) > most:
            detail = f"{len(self.rows)} refused rows would be quarantined, and {most} may be; {fresh[0].cause.detail}"
            raise EngineFault(FaultKind.TOO_MANY_SET_ASIDE, self._table, detail)
        return SetAside(len(self.rows), len(fresh), fresh[0].cause if fresh else None)

    def retry(self, chosen: Collection[str]) -> list[str]:
        """Insert rows into the table; rows that are rejected again get their new cause. Returns the ids of the inserted rows."""
        for row in [self.rows[id_] for id_ in self.rows if id_ in chosen]:
            values = lifted(row, self._schema)
            cause = self._take_one(values)
            if cause is None:
                self._end(row)
            else:
                self.rows[row.row] = replace(row, cause=cause, state=RefusedState.SET_ASIDE)
        return [id_ for id_ in chosen if id_ in self.before and id_ not in self.rows]

    def skip(self, chosen: Collection[str], by: str, at: str) -> list[str]:
        """Returns the ids of newly skipped rows."""
        found = [id_ for id_ in self.rows if id_ in chosen and self.rows[id_].state is RefusedState.SET_ASIDE]
        for id_ in found:
            self.rows[id_] = replace(self.rows[id_], state=RefusedState.SKIPPED, ended_by=by, ended_at=at)
        return found

    def _take_one(self, values: Texts) -> RefusedCause | None:
        found = typed_one(self._schema, values, self._decode)
        if isinstance(found, RefusedCause):
            return found
        refused = self._tables.apply_except_refused(
            self._table, self._place, self._schema, self._changes(None, found), 1
        )
        return refused[0][1] if refused else None

    def _change_piece(self, changes: Sequence[TableChanges], origin: Origin) -> None:
        deletes = joined([change.deletes for change in changes])
        inserts = [rows_of(change.inserts) for change in changes if change.inserts is not None]
        partials = joined([change.partials for change in changes])
        replaced = joined([change.replaced for change in changes])
        refused = joined([change.refused for change in changes])
        truncated = any(change.truncated for change in changes)
        if truncated:
            for row in list(self.rows.values()):
                self._end(row)
        all_deletes = deletes
        images, deletes = self._end_deleted(deletes)
        _, replaced = self._end_deleted(replaced)
        if partials is not None:
            inserts += self._completed(partials, images, origin)
        if refused is not None:
            self._keep(refused, images, origin)
        whole = replace(self._changes(deletes, joined(inserts), truncated=truncated), replaced=replaced)
        refused_here = self._tables.apply_except_refused(self._table, self._place, self._schema, whole, self._left)
        before = set(texts_of(all_deletes, self._keys, self._schema.key_columns)) if refused_here else set()
        for row, cause in refused_here:
            values = texts_of(row, self._columns, self._schema.columns)[0]
            key = key_of(self._schema, values, self._decode)
            self._add(values, key, "update" if key and key in before else "insert", cause, origin)

    @property
    def _left(self) -> int:
        return max(0, self._most - len(self.rows))

    def _changes(self, deletes: Any | None, inserts: Any | None, *, truncated: bool = False) -> TableChanges:
        return TableChanges(self._table, truncated, deletes, inserts, None)

    def _end_deleted(self, deletes: Any | None) -> tuple[dict[Texts, RefusedRow], Any | None]:
        """Remove quarantined rows that are deleted or replaced, by key; returns them, and the deletes of rows that are in the table."""
        if deletes is not None and self.rows and self._schema.mode is KeyMode.BAG:
            return {}, self._end_images(deletes)
        if deletes is None or not self._by_key:
            return {}, deletes
        keys = texts_of(deletes, self._keys, self._schema.key_columns)
        aside = [key in self._by_key for key in keys]
        images = {key: self.rows[self._by_key[key]] for key, is_aside in zip(keys, aside, strict=True) if is_aside}
        for row in images.values():
            self._end(row)
        left = deletes.filter(pa.array([not is_aside for is_aside in aside]))
        return images, left if left.num_rows else None

    def _end_images(self, deletes: Any) -> Any | None:
        """The same for a table without a key: rows are identified by their images, of which `n` equal ones are deleted."""
        left = deletes["n"].to_pylist()
        for at, image in enumerate(texts_of(deletes, self._columns, self._schema.columns)):
            same = [row for row in self.rows.values() if lifted(row, self._schema) == image][: left[at]]
            for row in same:
                self._end(row)
            left[at] -= len(same)
        counted = deletes.set_column(deletes.schema.get_field_index("n"), "n", pa.array(left, pa.int64()))
        counted = counted.filter(pa.array([count > 0 for count in left]))
        return counted if counted.num_rows else None

    def _completed(self, partials: Any, images: dict[Texts, RefusedRow], origin: Origin) -> list[Any]:
        """Rows with unset columns filled from the previous row, as columns c0 … cn; rejected ones are quarantined."""
        keys = texts_of(partials, self._keys, self._schema.key_columns)
        values = texts_of(partials, self._columns, self._schema.columns)
        old = self._old_texts(partials, keys, images)
        rows = [self._filled(partials, at, values[at], old.get(key)) for at, key in enumerate(keys)]
        try:
            return [typed(self._schema, rows, self._decode)]
        except EngineFault as fault:
            if fault.kind is not FaultKind.VALUE_OUT_OF_DOMAIN:
                raise
        found = []
        for row in rows:
            one = typed_one(self._schema, row, self._decode)
            if isinstance(one, RefusedCause):
                self._add(row, key_of(self._schema, row, self._decode), "update", one, origin)
            else:
                found.append(one)
        return found

    def _old_texts(self, rows: Any, keys: Sequence[Texts], images: dict[Texts, RefusedRow]) -> dict[Texts, Texts]:
        """Previous rows as texts, from the quarantine or else from the table; `rows` have typed columns k0 … km."""
        old = {key: lifted(images[key], self._schema) for key in keys if key in images}
        missing = [key not in old for key in keys]
        if any(missing):
            wanted = rows.select(self._keys).filter(pa.array(missing))
            old |= self._tables.texts_at(self._table, self._place, self._schema, wanted)
        return old

    def _filled(self, rows: Any, at: int, values: Texts, old: Texts | None) -> Texts:
        unset = [self._is_unset(rows, at, i) for i in range(len(values))]
        if any(unset) and old is None:
            detail = "the target has no row with the unchanged values of a changed row"
            raise EngineFault(FaultKind.NET_CHANGE_ANOMALY, self._table, detail)
        return tuple(old[i] if unset[i] and old is not None else values[i] for i in range(len(values)))

    @staticmethod
    def _is_unset(rows: Any, at: int, column: int) -> bool:
        return f"u{column}" in rows.schema.names and bool(rows.column(f"u{column}")[at].as_py())

    def _keep(self, refused: Any, images: dict[Texts, RefusedRow], origin: Origin, *, strict: bool = True) -> None:
        """Quarantine rows that their columns cannot hold. `strict`: a row that must exist is missing."""
        keys = [self._key_before(refused, at) for at in range(refused.num_rows)]
        for at, row in enumerate(refused.to_pylist()):
            key = keys[at]
            if key is not None and key not in images and key in self._by_key:
                images[key] = self.rows[self._by_key[key]]
                self._end(images[key])
            cause = RefusedCause(FaultKind.VALUE_OUT_OF_DOMAIN.value, row["cause"])
            if row["gone"]:
                if strict and key not in images:
                    detail = "a delete of a row that is not there"
                    raise EngineFault(FaultKind.NET_CHANGE_ANOMALY, self._table, detail)
                continue
            values = tuple(row[name] for name in self._columns)
            if any(row.get(f"u{i}") for i in range(len(values))):
                old = lifted(images[key], self._schema) if key in images else self._old_of(key)
                if old is not None or strict:
                    values = self._filled(refused, at, values, old)
            operation = "insert" if key is None else "update"
            self._add(values, key_of(self._schema, values, self._decode), operation, cause, origin)

    def _key_before(self, refused: Any, at: int) -> Texts | None:
        """The key of a rejected row before its change; None if there was none."""
        key = tuple(refused.column(name)[at].as_py() for name in self._keys if name in refused.schema.names)
        return None if not key or None in key else same_form(self._schema, key, self._decode)

    def _old_of(self, key: Texts | None) -> Texts | None:
        if key is None:
            return None
        keys = replace(self._schema, columns=self._schema.key_columns)
        found = typed_one(keys, key, self._decode)
        if isinstance(found, RefusedCause):
            return None
        wanted = found.rename_columns(self._keys)
        return self._tables.texts_at(self._table, self._place, self._schema, wanted).get(key)

    def _add(self, values: Texts, key: Texts, operation: str, cause: RefusedCause, origin: Origin) -> None:
        self.add(refused_row(self._schema, values, key, operation, cause, origin))

    def add(self, row: RefusedRow) -> None:
        """Add a quarantined row."""
        self.rows[row.row] = row
        self.fresh.append(row)
        if row.key:
            self._by_key[row.key] = row.row

    def _end(self, row: RefusedRow) -> None:
        self.rows.pop(row.row, None)
        if self._by_key.get(row.key) == row.row:
            del self._by_key[row.key]
