"""Column types of random tables: how they are written, values of them, and which other types they may become."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """A family of types. The value is what SQL calls it, but for an enum, which has a name of its own."""

    INT = "int"
    BIGINT = "bigint"
    NUMERIC = "numeric"
    VARCHAR = "varchar"
    TEXT = "text"
    TIMESTAMPTZ = "timestamptz"
    BOOLEAN = "boolean"
    JSONB = "jsonb"
    INTS = "int[]"
    ENUM = "enum"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type with its limits. `size`: characters, digits, or digits of a second; 0 = without a limit. `enum`: as SQL names it."""

    kind: Kind
    size: int = 0
    scale: int = 0
    enum: str = ""

    @property
    def sql(self) -> str:
        if self.kind is Kind.ENUM:
            return self.enum
        if not self.size:
            return self.kind.value
        scale = f",{self.scale}" if self.kind is Kind.NUMERIC else ""
        return f"{self.kind.value}({self.size}{scale})"


INT = ColumnType(Kind.INT)
BIGINT = ColumnType(Kind.BIGINT)
TEXT = ColumnType(Kind.TEXT)
BOOLEAN = ColumnType(Kind.BOOLEAN)
JSONB = ColumnType(Kind.JSONB)
INTS = ColumnType(Kind.INTS)

SMALL = frozenset({Kind.INT, Kind.BIGINT, Kind.BOOLEAN, Kind.TIMESTAMPTZ})
"""Kinds whose values always fit into an index."""
_WORDS = (
    "a",
    "b c",
    "Zoë",
    "quo''te",
    "back\\slash",
    "tab\there",
    "NULL",
    "",
    "  ",
    "漢字",
    "line\nbreak",
    "{1,2}",
    "0",
)
_JSON = ('{"a": 1}', "[1, 2, null]", '"x"', "3.50", "null", '{"b": {"c": [true]}, "a": "ü"}', "{}")
_LARGE = "(SELECT string_agg(md5(({n} + i)::text), '') FROM generate_series(1, {rows}) AS i)"
"""Text that does not compress: it lies outside of its row, and the log does not send it where it stays as it is."""


def some_type(rng: random.Random, enum: str) -> ColumnType:
    """A type for a new column. `enum`: the one that belongs to its table."""
    kind = rng.choice(list(Kind))
    if kind is Kind.NUMERIC:
        return ColumnType(kind, rng.choice((6, 12, 20)), rng.choice((0, 2, 4)))
    if kind is Kind.VARCHAR:
        return ColumnType(kind, rng.choice((5, 20, 60)))
    if kind is Kind.TIMESTAMPTZ:
        return ColumnType(kind, rng.choice((0, 3)))
    return ColumnType(kind, enum=enum if kind is Kind.ENUM else "")


def literal(rng: random.Random, of: ColumnType, labels: tuple[str, ...]) -> str:
    """A value as an SQL expression. `labels`: values of an enum."""
    kind = of.kind
    if kind in (Kind.INT, Kind.BIGINT):
        return str(rng.randint(-1000, 1000))
    if kind is Kind.NUMERIC:
        whole = rng.randint(-99, 99)
        return f"{whole}.{rng.randrange(10**of.scale):0{of.scale}d}" if of.scale else str(whole)
    if kind in (Kind.VARCHAR, Kind.TEXT):
        return _text(rng.choice(_WORDS), of)
    if kind is Kind.TIMESTAMPTZ:
        day, second = rng.randint(1, 28), rng.randrange(60)
        return f"'2024-02-{day:02d} 13:14:{second:02d}.{rng.randrange(10**6):06d}+00'"
    if kind is Kind.BOOLEAN:
        return rng.choice(("true", "false"))
    if kind is Kind.JSONB:
        return f"'{rng.choice(_JSON)}'"
    if kind is Kind.INTS:
        return "'{" + ",".join(rng.choice(("1", "22", "-3", "NULL")) for _ in range(rng.randrange(4))) + "}'"
    return f"'{rng.choice(labels)}'"


def value(rng: random.Random, of: ColumnType, labels: tuple[str, ...]) -> str:
    """A value for a row: as `literal`, or a large text now and then."""
    if of.kind is Kind.TEXT and rng.random() < 0.12:
        return _LARGE.format(n=rng.randint(1, 10**6), rows=rng.choice((90, 150, 400)))
    return literal(rng, of, labels)


def _text(word: str, of: ColumnType) -> str:
    if not of.size:
        return f"'{word}'"
    # Two quotes are one character.
    cut = word if len(word) <= of.size else word[: of.size].rstrip("'")
    return f"'{cut}'"


def changed(of: ColumnType, name: str, labels: tuple[str, ...]) -> str:
    """An expression that makes another value of the same type out of what the column (quoted) `name` holds."""
    kind = of.kind
    if kind in (Kind.INT, Kind.BIGINT):
        return f"({name} + 1)"
    if kind is Kind.NUMERIC:
        return f"(-{name})"
    if kind is Kind.VARCHAR and of.size:
        return f"left(upper({name}) || 'x', {of.size})"
    if kind in (Kind.VARCHAR, Kind.TEXT):
        return f"({name} || 'x')"
    if kind is Kind.TIMESTAMPTZ:
        return f"({name} + interval '1 minute')"
    if kind is Kind.BOOLEAN:
        return f"(NOT {name})"
    if kind is Kind.JSONB:
        return f"jsonb_build_object('was', {name})"
    if kind is Kind.INTS:
        return f"({name} || 7)"
    return f"CASE WHEN {name} IS NULL THEN NULL ELSE '{labels[0]}'::{of.enum} END"


def wider(of: ColumnType) -> list[ColumnType]:
    """Types to which it can be changed without a rewrite."""
    if of.kind is Kind.VARCHAR and of.size:
        return [replace(of, size=of.size + 7), ColumnType(Kind.VARCHAR), TEXT]
    if of.kind is Kind.VARCHAR:
        return [TEXT]
    if of.kind is Kind.TEXT:
        return [ColumnType(Kind.VARCHAR)]
    if of.kind is Kind.NUMERIC and of.size:
        more = [replace(of, size=of.size + 3)] if of.size < 30 else []
        return [*more, ColumnType(Kind.NUMERIC)]
    if of.kind is Kind.TIMESTAMPTZ and of.size:
        return [ColumnType(Kind.TIMESTAMPTZ)]
    return []


def others(of: ColumnType, name: str) -> list[tuple[ColumnType, str]]:
    """Types to which it can be changed with a rewrite, and the expression over the column (quoted) `name`."""
    text = [(TEXT, f"{name}::text")]
    kind = of.kind
    if kind is Kind.INT:
        return [*text, (BIGINT, name), (ColumnType(Kind.NUMERIC, 20, 2), name), (ColumnType(Kind.VARCHAR, 20), name)]
    if kind is Kind.BIGINT:
        return [*text, (INT, f"({name} % 1000000000)"), (ColumnType(Kind.NUMERIC, 24, 0), name)]
    if kind is Kind.NUMERIC:
        longer = [(replace(of, size=of.size + 2, scale=of.scale + 1), name)] if 0 < of.size < 30 else []
        return [*text, *longer, (BIGINT, f"trunc({name})")]
    if kind in (Kind.VARCHAR, Kind.TEXT):
        return [
            (ColumnType(Kind.VARCHAR, 8), f"left({name}, 8)"),
            (INT, f"length({name})"),
            (JSONB, f"to_jsonb({name})"),
            (INTS, f"ARRAY[length({name})]"),
        ]
    if kind is Kind.TIMESTAMPTZ:
        return [*text, (ColumnType(Kind.TIMESTAMPTZ, 1), name)]
    if kind is Kind.BOOLEAN:
        return [*text, (INT, f"{name}::int")]
    if kind is Kind.INTS:
        return [*text, (JSONB, f"to_jsonb({name})")]
    return text
