"""Reads scenario files; tests/golden/source_behaviour/README.md describes their form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from engine.model.identity import TableName

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "source_behaviour"
_NAME = r'(?:"(?:[^"]|"")*"|[a-z_][a-z0-9_]*)'
_QUALIFIED = re.compile(rf"^(?:({_NAME})\.)?({_NAME})(.*)$")


@dataclass(frozen=True)
class Table:
    """A table to replicate; `schema` is the scenario's own where the file names none."""

    name: TableName
    insert_only: bool = False
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paragraph:
    """Statements sent as one message through one session."""

    session: str
    sql: str


@dataclass(frozen=True)
class Wait:
    """The target catches up before what follows."""


@dataclass(frozen=True)
class Parked:
    """The code with which a table parks, on every kind of target or on one."""

    code: str
    target_kind: str | None = None


@dataclass
class Scenario:
    name: str
    tables: list[Table] = field(default_factory=list)
    setup: list[Paragraph] = field(default_factory=list)
    workload: list[Paragraph | Wait] = field(default_factory=list)
    parked: dict[TableName, Parked] = field(default_factory=dict)

    def parked_on(self, target_kind: str) -> dict[TableName, str]:
        """Codes of the tables that park with this kind of target."""
        return {name: one.code for name, one in self.parked.items() if one.target_kind in {None, target_kind}}


def scenario_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.sql"))


def read_scenario(name: str) -> Scenario:
    return parse_scenario(name, (FOLDER / f"{name}.sql").read_text(encoding="utf-8"))


def parse_scenario(name: str, text: str) -> Scenario:
    """Raises ValueError where a directive is not one of those in the README."""
    reader = _Reader(Scenario(name))
    for line in text.splitlines():
        if line.startswith("-- "):
            reader.directive(line[3:].strip())
        else:
            reader.line(line)
    reader.end_paragraph()
    if not reader.scenario.tables or not reader.scenario.workload:
        raise ValueError(f"{name}: a scenario replicates a table and does something")
    return reader.scenario


class _Reader:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._lines: list[str] = []
        self._session = "a"
        self._section = ""

    def line(self, line: str) -> None:
        if line.strip():
            self._lines.append(line)
        else:
            self.end_paragraph()

    def directive(self, text: str) -> None:
        self.end_paragraph()
        word, _, rest = text.partition(" ")
        if word in ("setup", "workload") and not rest:
            self._section = word
            self._session = "a"
        elif word == "session" and rest:
            self._session = rest
        elif word == "wait" and not rest:
            self.scenario.workload.append(Wait())
        elif word == "replicate":
            name, options = self._name(rest)
            keys = [option.removeprefix("key=") for option in options if option.startswith("key=")]
            key = tuple(keys[0].split(",")) if keys else ()
            self.scenario.tables.append(Table(name, "insert_only" in options, key))
        elif word == "parked":
            name, (code, *kind) = self._name(rest)
            self.scenario.parked[name] = Parked(code, *kind)
        else:
            raise ValueError(f"{self.scenario.name}: unknown directive {text!r}")

    def end_paragraph(self) -> None:
        if not self._lines:
            return
        if not self._section:
            raise ValueError(f"{self.scenario.name}: statements before -- setup")
        paragraph = Paragraph(self._session, "\n".join(self._lines))
        self._lines = []
        if self._section == "setup":
            self.scenario.setup.append(paragraph)
        else:
            self.scenario.workload.append(paragraph)

    def _name(self, text: str) -> tuple[TableName, list[str]]:
        found = _QUALIFIED.match(text)
        if found is None:
            raise ValueError(f"{self.scenario.name}: {text!r} is not a table's name")
        schema = _unquoted(found[1]) if found[1] else self.scenario.name
        return TableName(schema, _unquoted(found[2])), found[3].split()


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
