"""Resolves declarations to tables: expands patterns and checks names on the target. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.kinds import ConnectionKind
from engine.model.change_data import changes_of
from engine.model.history import history_of
from engine.model.identity import TableName
from engine.model.quarantine import RefusedPolicy
from engine.model.shared import SharedInto
from engine.model.table_options import TableOptions
from server.declarations.table_body import TableBody
from server.declarations.table_options import LONGEST_NAME, skipped_operations
from server.errors import FieldError, InvalidRequest


class PatternMatchesNothing(InvalidRequest):
    code = "pattern_matches_nothing"
    title = "A pattern matches no table"
    default_remedy = "Check the schema's name; GET /connections/{name}/tables lists what the source has."


class IntoExistingUnsupported(InvalidRequest):
    code = "into_existing_unsupported"
    title = "The target does not support into_existing"
    default_remedy = "Leave into_existing out, or use a PostgreSQL target."


class SharedTableConflict(InvalidRequest):
    code = "shared_table_conflict"
    title = "The tables conflict in a shared table"
    default_remedy = "Give each table a different source value, all of them the same source column, and the shared table an unused name."


@dataclass(frozen=True, slots=True)
class OccupiedPlaces:
    """Names on the target that other tables use."""

    places: Mapping[tuple[str, str], str]
    """Source name by folded target name."""
    shown: Sequence[tuple[str, SharedInto]]
    """Source names of tables in shared tables, each with its place in one."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One resolved table. `pointer`: the JSON pointer to its declaration in the request."""

    schema: str
    name: str
    target_schema: str
    target_name: str
    options: TableOptions
    from_pattern: bool
    pointer: str
    shared: SharedInto | None = None
    freshness: Mapping[str, Any] | None = None
    staging: bool = False
    """Its subscription has staging tables."""

    @property
    def source(self) -> tuple[str, str]:
        return self.schema, self.name


def declare_table(body: TableBody, pointer: str, subscription: str) -> Declaration:
    """The table that `body` names, in the subscription of this name.

    Raises:
        InvalidRequest: the derived name on the target is too long.
    """
    schema, name = body.place(subscription)
    if body.shared_into is not None and len(name.encode()) > LONGEST_NAME:
        detail = f"'{name}', the table for the rows of '{body.schema_name}.{body.name}', is longer than {LONGEST_NAME} bytes."
        raise InvalidRequest.at(f"{pointer}/shared_into", detail, 'Give it another name with "target".')
    return Declaration(
        schema=body.schema_name,
        name=body.name,
        target_schema=schema,
        target_name=name,
        options=body.options,
        from_pattern=False,
        pointer=pointer,
        shared=body.shared(subscription),
        freshness=body.freshness.given() if body.freshness is not None else None,
    )


def refuse_existing(tables: Sequence[tuple[str, bool]], target: ConnectionKind) -> None:
    """Refuse `into_existing` if the target does not support it. `tables`: JSON pointer and `into_existing` of each.

    Raises:
        IntoExistingUnsupported: a table has it, and the target does not support it.
    """
    wrong = [pointer for pointer, into_existing in tables if into_existing]
    if wrong and not target.takes_existing:
        detail = f"A target of the kind {target.name} does not support into_existing."
        errors = [FieldError(pointer=f"{pointer}/into_existing", detail=detail) for pointer in wrong]
        raise IntoExistingUnsupported(detail, errors=errors)


def refuse_existing_bodies(bodies: Sequence[TableBody], target: ConnectionKind) -> None:
    """Like `refuse_existing`, for the member `tables` of the request's body."""
    refuse_existing([(f"/tables/{number}", body.into_existing) for number, body in enumerate(bodies)], target)


def resolve_tables(
    bodies: Sequence[TableBody],
    discovered: Sequence[Mapping[str, Any]],
    target: ConnectionKind,
    subscription: str,
    kept_out: Collection[tuple[str, str]] = (),
    *,
    staging: bool = False,
) -> list[Declaration]:
    """The tables that `bodies` declare in the subscription of this name; declarations by name take precedence over patterns.

    `discovered`: the source's tables as discovery returns them, needed for patterns only. `kept_out`: schemas and names of tables that no
    pattern adds. `staging`: the subscription has staging tables.

    Raises:
        InvalidRequest: a table is declared twice, or two have the same name on the target; `errors` has their pointers.
        PatternMatchesNothing: there is no table in a pattern's schema.
        IntoExistingUnsupported: see `refuse_existing`.
    """
    refuse_existing_bodies(bodies, target)
    named: dict[tuple[str, str], Declaration] = {}
    errors = []
    for number, body in enumerate(bodies):
        if body.is_pattern:
            continue
        table = declare_table(body, f"/tables/{number}", subscription)
        if table.source in named:
            detail = f"The table '{body.schema_name}.{body.name}' is declared twice."
            errors.append(FieldError(pointer=table.pointer, detail=detail))
        named.setdefault(table.source, table)
    if errors:
        raise InvalidRequest("A table is declared more than once.", errors=errors)
    for number, body in enumerate(bodies):
        if body.is_pattern:
            for table in _expand_pattern(body, f"/tables/{number}", discovered, subscription):
                if table.source not in kept_out:
                    named.setdefault(table.source, table)
    tables = [replace(table, staging=staging) for table in named.values()]
    refuse_unstaged(tables)
    check_targets(tables, target, OccupiedPlaces({}, []))
    return tables


def check_targets(tables: Sequence[Declaration], target: ConnectionKind, taken: OccupiedPlaces) -> None:
    """Refuse tables whose names on the target conflict with each other or with `taken`.

    Raises:
        InvalidRequest: two tables have the same name on the target, or a schema is reserved.
        SharedTableConflict: their shared tables conflict.
    """
    seen = dict(taken.places)
    errors = []
    for table in tables:
        if target.fold(table.target_schema) in target.own_schemas:
            detail = f"The target's schema '{table.target_schema}' is reserved."
            errors.append(FieldError(pointer=table.pointer, detail=detail))
        own, kept = TableName(table.target_schema, table.target_name), table.options.history
        for place, who in places_of(own, f"{table.schema}.{table.name}", history=kept, staging=table.staging):
            other = seen.setdefault(_fold(target, place), who)
            if other != who:
                detail = f"'{who}' and '{other}' would be the same table on the target: '{place}'."
                errors.append(FieldError(pointer=table.pointer, detail=detail))
        if kept and len(history_of(own).name.encode()) > LONGEST_NAME:
            detail = f"'{history_of(own).name}', the history table of '{own}', would have a name longer than {LONGEST_NAME} bytes."
            errors.append(FieldError(pointer=f"{table.pointer}/history", detail=detail))
        if table.staging and len(changes_of(own).name.encode()) > LONGEST_NAME:
            detail = f"'{changes_of(own).name}', the CD table of '{own}', would have a name longer than {LONGEST_NAME} bytes."
            errors.append(FieldError(pointer=table.pointer, detail=detail))
    if errors:
        raise InvalidRequest(errors[0].detail, "Give one of them another target name or schema.", errors=errors)
    _check_shared(tables, target, OccupiedPlaces(seen, taken.shown))


def refuse_unstaged(tables: Sequence[Declaration]) -> None:
    """Refuse tables with options that staging tables exclude, if their subscription has those.

    Raises:
        InvalidRequest: a table has such an option; `errors` has the pointers.
    """
    errors = []
    for table in tables:
        options = table.options
        if not table.staging:
            continue
        if options.into_existing:
            detail = "staging tables belong to tables that Penstock creates; leave out into_existing."
            errors.append(FieldError(pointer=f"{table.pointer}/into_existing", detail=f"With 'staging', {detail}"))
        if options.refused_rows is RefusedPolicy.SET_ASIDE:
            detail = (
                "quarantined rows would be missing in the table and not in its changes; refused_rows must be 'park'."
            )
            errors.append(FieldError(pointer=f"{table.pointer}/refused_rows", detail=f"With 'staging', {detail}"))
        if skipped_operations(options.operations, insert_only=options.insert_only):
            detail = "every operation is needed; leave out 'operations'."
            errors.append(FieldError(pointer=f"{table.pointer}/operations", detail=f"With 'staging', {detail}"))
    if errors:
        raise InvalidRequest(
            errors[0].detail, "Leave the option out, or create the subscription without 'staging'.", errors=errors
        )


def places_of(target: TableName, who: str, *, history: bool, staging: bool) -> list[tuple[TableName, str]]:
    """The names that a table uses on the target, each with its source name."""
    kept = [(history_of(target), f"{who} (history)")] if history else []
    return [(target, who), *kept, *([(changes_of(target), f"{who} (changes)")] if staging else [])]


def _check_shared(tables: Sequence[Declaration], target: ConnectionKind, taken: OccupiedPlaces) -> None:
    """`taken.places` must include those of `tables`."""
    relations = {_fold(target, shared.relation): (shared, who) for who, shared in taken.shown}
    values = {(_fold(target, shared.relation), shared.source_value): who for who, shared in taken.shown}
    errors = []
    for table in tables:
        if table.shared is None:
            continue
        who, relation, into = f"{table.schema}.{table.name}", _fold(target, table.shared.relation), table.shared
        if relation[0] in target.own_schemas:
            detail = f"The target's schema '{into.relation.schema}' is reserved."
            errors.append(FieldError(pointer=f"{table.pointer}/shared_into/schema", detail=detail))
        known, first = relations.setdefault(relation, (into, who))
        if known.source_column != into.source_column:
            detail = f"The source column of '{into.relation}' is '{known.source_column}' for '{first}', not '{into.source_column}'."
            errors.append(FieldError(pointer=f"{table.pointer}/shared_into/source_column", detail=detail))
        other = values.setdefault((relation, into.source_value), who)
        if other != who:
            detail = f"'{other}' has the source value '{into.source_value}' in the shared table '{into.relation}'."
            errors.append(FieldError(pointer=f"{table.pointer}/shared_into/source_value", detail=detail))
    pointers = {f"{table.schema}.{table.name}": table.pointer for table in tables}
    for place in relations.keys() & taken.places.keys():
        (into, who), there = relations[place], taken.places[place]
        detail = f"'{into.relation}' is a shared table for '{who}', and the place of '{there}'."
        errors.append(FieldError(pointer=pointers.get(there, pointers.get(who, "")), detail=detail))
    if errors:
        raise SharedTableConflict(errors[0].detail, errors=errors)


def _fold(target: ConnectionKind, name: TableName) -> tuple[str, str]:
    return target.fold(name.schema), target.fold(name.name)


def _expand_pattern(
    body: TableBody, pointer: str, discovered: Sequence[Mapping[str, Any]], subscription: str
) -> list[Declaration]:
    found = [table for table in discovered if table["schema"] == body.schema_name]
    if not found:
        detail = f"The source has no table in the schema '{body.schema_name}'."
        raise PatternMatchesNothing(detail, errors=[FieldError(pointer=pointer, detail=detail)])
    return [
        declare_by_pattern(
            body, str(table["name"]), has_identity=_has_identity(table), subscription=subscription, pointer=pointer
        )
        for table in sorted(found, key=lambda table: str(table["name"]))
        if body.takes(body.schema_name, str(table["name"]))
    ]


def declare_by_pattern(
    body: TableBody, name: str, *, has_identity: bool, subscription: str, pointer: str = ""
) -> Declaration:
    """The table as declared by the pattern `body`. `insert_only` applies only if the table has no replica identity.

    Raises:
        InvalidRequest: see `declare_table`.
    """
    table = declare_table(body.model_copy(update={"name": name}), pointer, subscription)
    options = replace(table.options, insert_only=table.options.insert_only and not has_identity)
    return replace(table, options=options, from_pattern=True)


def _has_identity(table: Mapping[str, Any]) -> bool:
    return bool(table.get("key")) or table.get("identity") == "full"
