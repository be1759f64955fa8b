"""From what the user wrote to the tables that are meant: patterns expanded, names checked. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from server.connections.kinds import Kind
from server.errors import FieldError, InvalidRequest
from server.tables.body import TableBody, require_all_supported


class PatternMatchesNothing(InvalidRequest):
    code = "pattern_matches_nothing"
    title = "A pattern matches no table"
    default_remedy = "Check the schema's name; GET /connections/{name}/tables lists what the source has."


class IntoExistingUnsupported(InvalidRequest):
    code = "into_existing_unsupported"
    title = "The target takes no rows into tables that stand there"
    default_remedy = "Leave into_existing out, or use a PostgreSQL target."


@dataclass(frozen=True, slots=True)
class Declaration:
    """One table as it is meant. `pointer` leads to its place in the request."""

    schema: str
    name: str
    target_schema: str
    target_name: str
    key: tuple[str, ...]
    operations: tuple[str, ...]
    where: str | None
    insert_only: bool
    map_as: Mapping[str, str]
    from_pattern: bool
    pointer: str
    into_existing: bool = False
    priority: int = 0

    @property
    def source(self) -> tuple[str, str]:
        return self.schema, self.name


def declare(body: TableBody, pointer: str) -> Declaration:
    """The table that `body` names."""
    return Declaration(
        schema=body.schema_name,
        name=body.name,
        target_schema=body.target_schema,
        target_name=body.target_name,
        key=tuple(body.key or ()),
        operations=tuple(sorted(body.operations or ())),
        where=body.where,
        insert_only=body.insert_only,
        map_as=body.map_as,
        from_pattern=False,
        pointer=pointer,
        into_existing=body.into_existing,
        priority=body.priority,
    )


def refuse_existing(tables: Sequence[tuple[str, bool]], target: Kind) -> None:
    """`tables`: the pointer of each, and whether it is to go into a table that stands there.

    Raises:
        IntoExistingUnsupported: one is, and the target takes none so.
    """
    wrong = [pointer for pointer, into_existing in tables if into_existing]
    if wrong and not target.takes_existing:
        detail = f"A target of the kind {target.name} takes no rows into tables that stand there already."
        errors = [FieldError(pointer=f"{pointer}/into_existing", detail=detail) for pointer in wrong]
        raise IntoExistingUnsupported(detail, errors=errors)


def refuse_existing_bodies(bodies: Sequence[TableBody], target: Kind) -> None:
    """As `refuse_existing`, for the member `tables` of the request's body."""
    refuse_existing([(f"/tables/{number}", body.into_existing) for number, body in enumerate(bodies)], target)


def resolve(
    bodies: Sequence[TableBody],
    discovered: Sequence[Mapping[str, Any]],
    target: Kind,
    kept_out: Collection[tuple[str, str]] = (),
) -> list[Declaration]:
    """The tables that `bodies` mean; those declared by name take precedence over patterns.

    `discovered`: the source's tables, as its discovery answers; looked at only where there are patterns. `kept_out`: schemas and names
    of tables that no pattern brings in.

    Raises:
        InvalidRequest: a table is named twice, or two would be one on the target; `errors` point at the places.
        PatternMatchesNothing: there is no table in a pattern's schema.
        NotSupportedYet: see `require_all_supported`.
        IntoExistingUnsupported: see `refuse_existing`.
    """
    require_all_supported(bodies)
    refuse_existing_bodies(bodies, target)
    named: dict[tuple[str, str], Declaration] = {}
    errors = []
    for number, body in enumerate(bodies):
        if body.is_pattern:
            continue
        table = declare(body, f"/tables/{number}")
        if table.source in named:
            detail = f"The table '{body.schema_name}.{body.name}' is declared twice."
            errors.append(FieldError(pointer=table.pointer, detail=detail))
        named.setdefault(table.source, table)
    if errors:
        raise InvalidRequest("A table is declared more than once.", errors=errors)
    for number, body in enumerate(bodies):
        if body.is_pattern:
            for table in _expand(body, f"/tables/{number}", discovered):
                if table.source not in kept_out:
                    named.setdefault(table.source, table)
    tables = list(named.values())
    check_targets(tables, target, {})
    return tables


def check_targets(tables: Sequence[Declaration], target: Kind, taken: Mapping[tuple[str, str], str]) -> None:
    """Refuse tables that cannot stand beside each other, or beside those that are there, on the target.

    `taken`: folded target names of present tables, with their source names.

    Raises:
        InvalidRequest: what is said above.
    """
    seen = dict(taken)
    errors = []
    for table in tables:
        if target.fold(table.target_schema) in target.own_schemas:
            detail = f"The target's schema '{table.target_schema}' is reserved."
            errors.append(FieldError(pointer=table.pointer, detail=detail))
        folded = (target.fold(table.target_schema), target.fold(table.target_name))
        other = seen.setdefault(folded, f"{table.schema}.{table.name}")
        if other != f"{table.schema}.{table.name}":
            detail = (
                f"'{table.schema}.{table.name}' and '{other}' would be one table on the target: "
                f"'{table.target_schema}.{table.target_name}'."
            )
            errors.append(FieldError(pointer=table.pointer, detail=detail))
    if errors:
        raise InvalidRequest(errors[0].detail, "Give one of them another target name or schema.", errors=errors)


def _expand(body: TableBody, pointer: str, discovered: Sequence[Mapping[str, Any]]) -> list[Declaration]:
    found = [table for table in discovered if table["schema"] == body.schema_name]
    if not found:
        detail = f"The source has no table in the schema '{body.schema_name}'."
        raise PatternMatchesNothing(detail, errors=[FieldError(pointer=pointer, detail=detail)])
    return [
        by_pattern(body, str(table["name"]), has_identity=_has_identity(table), pointer=pointer)
        for table in sorted(found, key=lambda table: str(table["name"]))
        if body.takes(body.schema_name, str(table["name"]))
    ]


def by_pattern(body: TableBody, name: str, *, has_identity: bool, pointer: str = "") -> Declaration:
    """A table as the pattern `body`, which takes it, declares it. Consent to follow inserts only counts where it has no identity."""
    pattern = declare(body, pointer)
    only = pattern.insert_only and not has_identity
    return replace(pattern, name=name, target_name=name, insert_only=only, from_pattern=True)


def _has_identity(table: Mapping[str, Any]) -> bool:
    return bool(table.get("key")) or table.get("identity") == "full"
