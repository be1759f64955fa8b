"""Reads and writes scenario files with their expectations; tests/golden/schema_changes/README.md describes their form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.model.identity import TableName
from tests.pg.source_behaviour.scenario import Paragraph, Scenario, Wait, parse_scenario

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "schema_changes"
_HEADING = re.compile(r"^-- expected (.+?)(?: on (duckdb|postgres))?: (live|parked \w+)$")
_LONGEST = 40
_SHOWN = 12
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Outcome:
    """A table at the end: its state with its code, what the target holds, and what was reported of it."""

    state: str
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    history: tuple[str, ...] = ()


@dataclass
class Golden:
    """A file: its statements, and the text of what is expected of each table, by its name as written and the kind of target."""

    scenario: Scenario
    about: str
    written: str
    expected: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @property
    def rounds(self) -> list[list[Paragraph]]:
        """Its statements, parted where it waits."""
        parted: list[list[Paragraph]] = [[]]
        for step in self.scenario.workload:
            if isinstance(step, Wait):
                parted.append([])
            else:
                parted[-1].append(step)
        return parted

    def named(self, name: TableName) -> str:
        """The table's name as the file writes it."""
        own = [] if name.schema == self.scenario.name else [name.schema]
        return ".".join(part if _PLAIN.fullmatch(part) else _quoted(part) for part in [*own, name.name])

    def expectation(self, name: TableName, target_kind: str) -> str | None:
        """What the file expects of this table on this kind of target; None where it says nothing."""
        written = self.named(name)
        return self.expected.get((written, target_kind), self.expected.get((written, None)))

    def state(self, name: TableName, target_kind: str) -> str:
        """The state that the table is expected to end in, with its code."""
        text = self.expectation(name, target_kind)
        found = _HEADING.match(text.splitlines()[0]) if text else None
        return found[3] if found else "live"

    def heading(self, name: TableName, target_kind: str, state: str) -> str:
        """The first line of an expectation, in the words of the one that it is compared with."""
        written = self.named(name)
        kind = f" on {target_kind}" if (written, target_kind) in self.expected else ""
        return f"-- expected {written}{kind}: {state}"

    def replaced(self, name: TableName, target_kind: str, text: str) -> None:
        """Put `text` in the place of what the file expects."""
        written = self.named(name)
        kind = target_kind if (written, target_kind) in self.expected else None
        self.expected[written, kind] = text

    def text(self) -> str:
        """The whole file."""
        names = [self.named(table.name) for table in self.scenario.tables]
        ordered = sorted(self.expected, key=lambda each: (names.index(each[0]), each[1] or ""))
        return self.written + "".join(self.expected[each] + "\n" for each in ordered)


def golden_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.sql"))


def read_golden(name: str) -> Golden:
    return parse_golden(name, _path(name).read_text(encoding="utf-8"))


def write_golden(golden: Golden) -> None:
    _path(golden.scenario.name).write_text(golden.text(), encoding="utf-8")


def parse_golden(name: str, text: str) -> Golden:
    """Raises ValueError where the file does not begin with what it is about, or expects something of a table it does not replicate."""
    about, _, rest = text.partition("\n")
    if not about.startswith("-- ") or about.startswith("-- replicate"):
        raise ValueError(f"{name}: the first line says what the scenario is about")
    statements, *expected = re.split(r"^(?=-- expected )", rest, flags=re.MULTILINE)
    golden = Golden(parse_scenario(name, statements), about[3:], f"{about}\n{statements}")
    names = {golden.named(table.name) for table in golden.scenario.tables}
    for block in expected:
        heading = _HEADING.match(block.splitlines()[0])
        if heading is None or heading[1] not in names:
            raise ValueError(f"{name}: {block.splitlines()[0]!r} is not an expectation of a table that it replicates")
        golden.expected[heading[1], heading[2]] = block.rstrip("\n")
    return golden


def rendered(golden: Golden, name: TableName, target_kind: str, outcome: Outcome) -> str:
    """An outcome in the form in which files expect it."""
    lines = [golden.heading(name, target_kind, outcome.state)]
    shown = [tuple(map(_value, row)) for row in sorted(outcome.rows, key=_order)]
    lines += [f"--   {line}".rstrip() for line in _aligned([outcome.columns, *shown])]
    lines.append(f"-- history {golden.named(name)}:{'' if outcome.history else ' none'}")
    lines += [f"--   {line}" for line in outcome.history]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" | ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)) for row in rows]


def _order(row: Row) -> list[tuple[int, str]]:
    """Sort numbers of one length, and texts, by their characters, whatever the types are."""
    return [(len(value or ""), value or "") for value in row]


def _value(value: str | None) -> str:
    if value is None:
        return "NULL"
    if len(value) > _LONGEST:
        return f"{value[:_SHOWN]}… {len(value)} characters"
    return value.replace("\n", "\\n") if value not in ("", "NULL") else f"'{value}'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _path(name: str) -> Path:
    return FOLDER / f"{name}.sql"
