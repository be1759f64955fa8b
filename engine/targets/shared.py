"""Shared tables: their columns, and when they are redefined. The rows are stored in a separate table for each source, its members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.schema import Column, SourceType, TableSchema
from engine.model.shared import SharedInto
from engine.model.widening import holds
from engine.targets.identifiers import quoted
from engine.targets.metadata_store import MetadataStore
from engine.targets.sql_statements import SqlStatements
from engine.targets.target_metadata import Member


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """A column as readers see it."""

    name: str
    type: str
    """Type text in the target's SQL."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """One member's SQL expressions for the columns, in order; None if it lacks a column."""

    place: TableName
    value: str
    columns: tuple[tuple[str, str] | None, ...]
    """For each column after the source column: the member's name for it, and its type there."""


@dataclass(frozen=True, slots=True)
class SharedView:
    """A shared table's definition. The first column is the source column."""

    relation: TableName
    columns: tuple[SharedColumn, ...]
    parts: tuple[SharedPart, ...]

    def arranged(self, present: Sequence[SharedColumn], same_name: Callable[[str], str], *, kept: bool) -> SharedView:
        """The definition in the existing order of columns, followed by new ones. `kept`: columns that no member has any more stay."""
        old = [same_name(column.name) for column in present[1:]]
        names = [same_name(column.name) for column in self.columns[1:]]
        order = [name for name in old if kept or name in names] + [name for name in names if name not in old]
        standing = dict(zip(old, present[1:], strict=True))
        wanted = dict(zip(names, self.columns[1:], strict=True))
        parts = []
        for part in self.parts:
            own = dict(zip(names, part.columns, strict=True))
            parts.append(replace(part, columns=tuple(own.get(name) for name in order)))
        columns = tuple(wanted[name] if name in wanted else standing[name] for name in order)
        return SharedView(self.relation, (self.columns[0], *columns), tuple(parts))

    def drops(self, present: Sequence[SharedColumn], same_name: Callable[[str], str]) -> bool:
        """Whether an existing column is missing in it."""
        return bool(
            {same_name(column.name) for column in present} - {same_name(column.name) for column in self.columns}
        )

    def select(self, qualified: Callable[[TableName], str]) -> str:
        """The rows of all members, as SQL."""
        return " UNION ALL ".join(self._select(part, qualified) for part in self.parts)

    def _select(self, part: SharedPart, qualified: Callable[[TableName], str]) -> str:
        source, *others = self.columns
        value = "'" + part.value.replace("'", "''") + "'"
        terms = [f"CAST({value} AS {source.type}) AS {quoted(source.name)}"]
        for column, own in zip(others, part.columns, strict=True):
            term = "NULL" if own is None else quoted(own[0])
            if own is None or own[1] != column.type:
                term = f"CAST({term} AS {column.type})"
            terms.append(f"{term} AS {quoted(column.name)}")
        return f"SELECT {', '.join(terms)} FROM {qualified(part.place)}"


def nothing(columns: Sequence[SharedColumn]) -> str:
    """SQL that returns these columns without rows, from no table."""
    return f"SELECT {', '.join(f'CAST(NULL AS {c.type}) AS {quoted(c.name)}' for c in columns)} WHERE false"


class SqlViews(SqlStatements, ABC):
    """A base for operations on shared tables, which are views, within the caller's transaction.

    A kind of target implements the five abstract methods, and overrides others if it folds names, writes concurrently, or has owners.
    """

    @abstractmethod
    def type_of(self, column: Column) -> str:
        """Type text of a column in a table of ours."""

    @abstractmethod
    def columns(self, relation: TableName) -> list[SharedColumn]:
        """The columns of an existing view; none if the relation is not one."""

    @abstractmethod
    def dependents(self, relation: TableName) -> list[str]:
        """Names of the objects that depend on the relation."""

    @abstractmethod
    def replace(self, relation: TableName, select: str) -> None:
        """Create the view, or replace it in place."""

    @abstractmethod
    def show(self, table: TableId, view: SharedView) -> None:
        """Define the relation. A column on which other objects depend stays, as NULL, even if no member has it any more.

        Raises EngineFault(TABLE_UNFIT) for `table` if dependent objects prevent it.
        """

    def same_name(self, name: str) -> str:
        """Equal for names of columns, schemas and tables that the target does not distinguish."""
        return name

    def lock(self) -> None:
        """Prevent others from defining a shared table until the transaction ends. By default no one else writes."""

    def owned(self, table: TableId, relation: TableName) -> AbstractContextManager[None]:
        """Raises EngineFault(TABLE_UNFIT) for `table` if we lack the privilege for what the block does to the relation."""
        del table, relation
        return nullcontext()

    def loosen(self, table: TableId, relation: TableName) -> None:
        """Redefine the relation without members until it is shown again, so that they can change. No effect if it does not exist.

        Raises as `owned`. Readers do not see this: it is defined with members again in the same transaction.
        """
        present = self.columns(relation)
        if present:
            with self.owned(table, relation):
                self.replace(relation, nothing(present))

    def drop(self, table: TableId, relation: TableName) -> None:
        """Raises EngineFault(TABLE_NOT_DROPPED) for `table` if other objects depend on the relation, and as `owned`."""
        dependents = self.dependents(relation)
        if dependents:
            detail = f"it is the last table that {relation} shows, and these show that: {', '.join(dependents)}"
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, table, detail)
        with self.owned(table, relation):
            self.execute(f"DROP VIEW IF EXISTS {self.qualified(relation)}")


class SharedTables:
    """Keeps shared tables consistent with their members, within one transaction.

    Call `open` before a change of a member, then `shown`, `remove_member` or neither, and `redefine_relations` last.
    """

    def __init__(self, records: MetadataStore, views: SqlViews, exists: Callable[[TableName], bool]) -> None:
        """`exists`: `SqlTables.exists`."""
        self._records = records
        self._views = views
        self._exists = exists
        self._touched: dict[TableName, list[TableId]] = {}
        """Relations to redefine, each with the tables that change, one of which is named in a fault."""
        self._strange: set[TableName] = set()
        """Relations that showed nothing before: an existing one with the name is not ours."""

    def open(self, table: TableId, place: TableName) -> None:
        """The table with this name is about to change. No effect if no shared table shows it."""
        member = self._records.member(place)
        if member is not None:
            self._touch(table, member.into.relation)

    def shown(self, place: TableName, schema: TableSchema) -> None:
        """The table with this name has this schema and complete rows."""
        member = self._records.member(place)
        if member is not None:
            self._records.write_member(replace(member, schema=schema))

    def remove_member(self, place: TableName) -> None:
        """The table with this name was dropped, or is not shown any more."""
        self._records.delete_member(place)

    def redefine_relations(self, faults_of: Callable[[TableId], AbstractContextManager[None]]) -> None:
        """Redefine the affected relations, or drop those without members.

        `faults_of`: as SqlTables.faults_of. Raises EngineFault(SHARED_TABLE_CONFLICT, TABLE_NAME_COLLISION, TABLE_UNFIT, TABLE_NOT_DROPPED)
        for a table that changed.
        """
        touched, self._touched = self._touched, {}
        for relation, tables in touched.items():
            with faults_of(tables[-1]):
                self._define(tables, relation)

    def adopt(self, subscription: SubscriptionName, table: TableId, place: TableName, into: SharedInto | None) -> None:
        """Record the shared table that is to show the table with this name; it is removed from its previous one.

        Raises:
            EngineFault: SHARED_TABLE_CONFLICT if another member has the source value, or the relation's source column has another name;
                TABLE_NAME_COLLISION if another object has the relation's name.
        """
        before = self._records.member(place)
        if before is not None and before.into != into:
            self._touch(table, before.into.relation)
            self.remove_member(place)
            before = None
        if into is not None:
            self._refuse(subscription, table, place, into)
            schema = before.schema if before is not None else None
            self._records.write_member(Member(subscription, table, place, into, schema))
        self.redefine_relations(lambda _: nullcontext())

    def refuse_columns(self, table: TableId, place: TableName, schema: TableSchema) -> None:
        """Raises EngineFault(SHARED_TABLE_CONFLICT) if a table with this schema conflicts with the other members."""
        member = self._records.member(place)
        if member is not None:
            relation = member.into.relation
            others = [m for m in self._records.members(relation) if m.schema is not None and m.place != member.place]
            members = [*others, replace(member, schema=schema)]
            shared_view([table], relation, members, self._views)

    def mend(self, subscription: SubscriptionName) -> None:
        """Redefine relations of the subscription if someone dropped a member or the relation."""
        shown = [member for member in self._records.members() if member.schema is not None]
        for own in shown:
            if own.subscription != subscription or own.into.relation in self._touched:
                continue
            lost = [m for m in shown if m.into.relation == own.into.relation and not self._exists(m.place)]
            if lost or not self._exists(own.into.relation):
                self._touch(own.table, own.into.relation)
                for member in lost:
                    self.remove_member(member.place)
        self.redefine_relations(lambda _: nullcontext())

    def _refuse(self, subscription: SubscriptionName, table: TableId, place: TableName, into: SharedInto) -> None:
        members = self._records.members(into.relation)
        why = conflict(place, into, members, self._views.same_name)
        if why is not None:
            raise EngineFault(FaultKind.SHARED_TABLE_CONFLICT, table, why)
        relation = _folded(into.relation, self._views.same_name)
        exists = self._exists(into.relation)
        same = [r for r in self._records.reservations(None) if _folded(r.target, self._views.same_name) == relation]
        shown = any(member.schema is not None for member in members)
        if any(exists or not one.removed for one in same) or (exists and not shown):
            detail = f"a table or view {into.relation} on the target has the shared table's name"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)

    def _touch(self, table: TableId, relation: TableName) -> None:
        if relation not in self._touched:
            self._views.lock()
            if any(member.schema is not None for member in self._records.members(relation)):
                self._views.loosen(table, relation)
            else:
                self._strange.add(relation)
        self._touched.setdefault(relation, []).append(table)

    def _define(self, tables: Sequence[TableId], relation: TableName) -> None:
        table = tables[-1]
        members = [m for m in self._records.members(relation) if m.schema is not None and self._exists(m.place)]
        ours = relation not in self._strange and bool(self._views.columns(relation))
        if members and not ours and self._exists(relation):
            detail = f"a table or view {relation} on the target has the shared table's name"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
        if not members:
            if relation not in self._strange:
                self._views.drop(table, relation)
            return
        self._views.show(table, shared_view(tables, relation, members, self._views))


def shown_alike(one: TableSchema | None, other: TableSchema) -> bool:
    """Whether tables of both schemas contribute the same columns to a shared table."""
    if one is None:
        return True
    columns = [[(column.name, column.type, column.map_as) for column in schema.columns] for schema in (one, other)]
    return columns[0] == columns[1]


def conflict(
    place: TableName, into: SharedInto, members: Sequence[Member], same_name: Callable[[str], str]
) -> str | None:
    """Why a table with this name cannot become a member of its relation; None if it can."""
    if _folded(place, same_name) == _folded(into.relation, same_name):
        return f"{place} is the shared table itself: a table that it shows needs another name"
    for other in members:
        if _folded(other.place, same_name) == _folded(place, same_name):
            continue
        if other.into.source_value == into.source_value:
            return (
                f"the rows of {other.place} have the source value {into.source_value!r} in {into.relation} already:"
                ' give this table another "source_value"'
            )
        if other.into.source_column != into.source_column:
            return f"the source column of {into.relation} is {other.into.source_column!r}, not {into.source_column!r}"
    return None


def shared_findings(
    shared: Mapping[TableName, SharedInto], members: Sequence[Member], same_name: Callable[[str], str]
) -> list[tuple[str, str, str, str]]:
    """Preflight: what prevents tables, by their names, from being shown as declared. Columns are checked when they are copied."""
    nobody, unknown = SubscriptionName(""), TableId("")
    declared = [Member(nobody, unknown, place, into, None) for place, into in shared.items()]
    others = {_folded(member.place, same_name): member for member in [*members, *declared]}
    findings = []
    for place, into in shared.items():
        relation = _folded(into.relation, same_name)
        beside = [m for m in others.values() if _folded(m.into.relation, same_name) == relation]
        why = conflict(place, into, beside, same_name)
        if why is not None:
            remedy = "change what it names in the table's declaration"
            findings.append(("error", FaultKind.SHARED_TABLE_CONFLICT.value, f"{place}: {why}", remedy))
    return findings


def shared_view(
    changing: Sequence[TableId], relation: TableName, members: Sequence[Member], views: SqlViews
) -> SharedView:
    """The definition: the source column, and the union of the members' columns by name, each with a type for all values.

    Raises:
        EngineFault: SHARED_TABLE_CONFLICT if there is no such type, or a column has the source column's name. It names one of `changing`.
    """
    source = Column(members[0].into.source_column, SourceType("text"), 0)
    found: dict[str, tuple[Member, Column]] = {}
    for member in members:
        for column in _columns(member):
            name = views.same_name(column.name)
            if name == views.same_name(source.name):
                detail = f"{member.place} has a column {column.name!r}, and so is the source column of {relation} named"
                raise _conflict(
                    _blamed(changing, [member]), f'{detail}: declare another "source_column" for all its tables'
                )
            known = found.get(name)
            both = known and _wider(known[1], column, views)
            if known is not None and both is None:
                raise _no_type(changing, relation, known, (member, column), views)
            found[name] = (member, both or column)
    columns = tuple(SharedColumn(column.name, views.type_of(column)) for _, column in found.values())
    parts = tuple(_part(member, found, views) for member in members)
    return SharedView(relation, (SharedColumn(source.name, views.type_of(source)), *columns), parts)


def _part(member: Member, found: Mapping[str, tuple[Member, Column]], views: SqlViews) -> SharedPart:
    own = {views.same_name(column.name): column for column in _columns(member)}
    columns = tuple((own[name].name, views.type_of(own[name])) if name in own else None for name in found)
    return SharedPart(member.place, member.into.source_value, columns)


def _wider(one: Column, other: Column, views: SqlViews) -> Column | None:
    """The column whose type holds the values of both, under the first one's name; None where neither does."""
    if views.type_of(one) == views.type_of(other) or _all_held(other, one, views):
        return one
    return replace(other, name=one.name) if _all_held(one, other, views) else None


def _no_type(
    changing: Sequence[TableId],
    relation: TableName,
    one: tuple[Member, Column],
    other: tuple[Member, Column],
    views: SqlViews,
) -> EngineFault:
    (member, column), (another, there) = one, other
    detail = (
        f"column {column.name!r} is {views.type_of(column)} in {member.place} and {views.type_of(there)} in {another.place}, and no type of"
        f' {relation} holds the values of both: make them alike on the sources, or give both "map_as": "text"'
    )
    return _conflict(_blamed(changing, [another, member]), detail)


def _blamed(changing: Sequence[TableId], members: Collection[Member]) -> TableId:
    """The table to name in a fault, of those that change."""
    return next((member.table for member in members if member.table in changing), changing[-1])


def _all_held(narrow: Column, wide: Column, views: SqlViews) -> bool:
    """Whether values of the one are values of the other as the target holds them: what it has no type for is text there."""
    if narrow.map_as is None and wide.map_as is None and holds(narrow.type, wide.type):
        return True
    text = Column("", SourceType("text"), 0)
    both = [text if views.type_of(column) == views.type_of(text) else column for column in (narrow, wide)]
    return all(column.map_as is None for column in both) and holds(both[0].type, both[1].type)


def _columns(member: Member) -> tuple[Column, ...]:
    return member.schema.columns if member.schema is not None else ()


def _folded(name: TableName, same_name: Callable[[str], str]) -> tuple[str, str]:
    return same_name(name.schema), same_name(name.name)


def _conflict(table: TableId, detail: str) -> EngineFault:
    return EngineFault(FaultKind.SHARED_TABLE_CONFLICT, table, detail)
