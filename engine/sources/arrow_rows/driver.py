"""What the process of a driver needs of one kind of driver: each implements `Driver` in the folder of its kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.model.fault import EngineFault, FaultKind
from engine.sources.arrow_rows.forms import Form
from engine.sources.arrow_rows.options import SECRET_OPTIONS, options_of

Name = tuple[str, str]
"""Schema and name of a table."""
SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog", "pg_toast", "sys", "mysql", "performance_schema"})
"""Schemas whose tables are not listed, in lower case."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table. `columns`: name, type as users read it, form; `key`: the primary key, as far as the driver tells it; `problem`: why it
    cannot be read."""

    columns: tuple[tuple[str, str, Form], ...]
    key: tuple[str, ...] = ()
    problem: str | None = None


class Driver(Protocol):
    """A driver with a session. Used by one thread. Methods raise EngineFault, and what the driver raises."""

    def tables(self, names: Collection[Name] | None) -> Mapping[Name, Found]:
        """These tables, or all."""
        ...

    def rows(self, name: Name, columns: Sequence[str]) -> tuple[list[Form], Iterator[Any]]:
        """One statement that reads all rows: the forms of these columns, and batches of Arrow."""
        ...

    def check(self) -> None:
        """Open another session, and end it."""
        ...

    def reopen(self) -> None:
        """Continue in another session: one that stays may show a database that was moved or replaced."""
        ...


class Opener(Protocol):
    """Opens a driver. `settings` and `secrets` are those of the connection."""

    def __call__(self, settings: Mapping[str, Any], secrets: Mapping[str, str]) -> Driver: ...


def quoted_by(mark: str) -> tuple[str, str]:
    """The marks before and after a name."""
    return (mark, {"[": "]"}.get(mark, mark))


def quoted_name(name: str, mark: str) -> str:
    first, last = quoted_by(mark)
    return f"{first}{name.replace(last, last * 2)}{last}"


def select_all(
    name: Name, columns: Sequence[str], mark: str, value: Callable[[str, str], str] = lambda _, quoted: quoted
) -> str:
    """A statement that reads these columns of a table, or all. `value`: the expression for a column by its name, and by its name in SQL."""
    table = ".".join(quoted_name(part, mark) for part in name if part)
    taken = ", ".join(value(column, quoted_name(column, mark)) for column in columns) or "*"
    return f"SELECT {taken} FROM {table}"


def options_given(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """The options of a connection, open and secret ones. Raises EngineFault(SOURCE_UNREACHABLE)."""
    try:
        return options_of(str(settings.get("options", ""))) | options_of(secrets.get(SECRET_OPTIONS, ""))
    except ValueError:
        what = (
            f"the secret `{SECRET_OPTIONS}` is not of the form name=value;name=value, or has an option that loads code"
        )
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, "", what) from None
