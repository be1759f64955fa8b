"""Writes the reference pages whose content is in the code: types, settings, faults. `python docs/generate.py` in the project folder.

A test compares the pages with what this renders, so a page never says anything else than the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from engine.model import subscription_state, table_state
from engine.model.fault import FaultKind
from engine.model.schema import Column, SourceType
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableState
from engine.model.values import value_type
from engine.platform.fault_policy import POLICIES
from engine.platform.settings import EngineSettings
from engine.targets.duckdb.types import duckdb_type
from server.settings import Settings

FOLDER = Path(__file__).resolve().parent
STATES_BEGIN, STATES_END = "<!-- states, written by docs/generate.py -->", "<!-- end of states -->"
NOTICE = "<!-- Written by docs/generate.py; change the code it reads, then run it again. -->"


def numeric(precision: int, scale: int) -> SourceType:
    return SourceType("numeric", (precision << 16 | scale & 0x7FF) + 4)


def array(element: SourceType) -> SourceType:
    return SourceType("_" + element.name, element.modifier, element=element)


TYPES: tuple[tuple[str, SourceType, str], ...] = (
    ("`boolean`", SourceType("bool"), ""),
    ("`smallint`", SourceType("int2"), ""),
    ("`integer`", SourceType("int4"), ""),
    ("`bigint`", SourceType("int8"), ""),
    ("`oid`", SourceType("oid"), ""),
    ("`real`", SourceType("float4"), "NaN, infinities and -0 included"),
    ("`double precision`", SourceType("float8"), "NaN, infinities and -0 included"),
    ("`numeric(p,s)`, 1 ≤ p ≤ 38, 0 ≤ s ≤ p; here (10,2)", numeric(10, 2), "NaN parks the table"),
    ("`numeric` without precision", SourceType("numeric"), "digits as printed, NaN and infinities included"),
    ("`numeric(p,s)` with p > 38; here (39,2)", numeric(39, 2), "digits as printed"),
    ("`numeric(p,s)` with s < 0 or s > p; here (5,-2)", numeric(5, -2), "digits as printed"),
    ("`money`", SourceType("money"), "as printed with lc_monetary C"),
    ("`text`, `varchar`, `varchar(n)`, `name`", SourceType("text"), ""),
    ("`char(n)`", SourceType("bpchar"), "with its padding blanks"),
    ("`bytea`", SourceType("bytea"), ""),
    ("`uuid`", SourceType("uuid"), ""),
    ("`json`, `jsonb`", SourceType("jsonb"), "as printed; DuckDB's JSON functions read it"),
    ("`date`", SourceType("date"), "±infinity, years before 1 and after 9999 included"),
    (
        "`timestamp`",
        SourceType("timestamp"),
        "±infinity and years before 1 included; from 294247-01-10 on the table parks",
    ),
    ("`timestamptz`", SourceType("timestamptz"), "the moment, in UTC; from 294247-01-10 on the table parks"),
    ("`time`", SourceType("time"), "24:00:00 included"),
    ("`timetz`", SourceType("timetz"), "with its offset"),
    ("`interval`", SourceType("interval"), "months, days and time apart, as printed"),
    ("`enum` types", SourceType("mood", category="e"), "the label"),
    ("domains", SourceType("int4"), "as their base type; here over `integer`"),
    ("arrays of one dimension; here `integer[]`", array(SourceType("int4")), "NULL elements included"),
    ("arrays of text forms; here `interval[]`", array(SourceType("interval")), "each element as printed"),
    ("`inet`, `cidr`, `macaddr`, `macaddr8`", SourceType("inet"), ""),
    ("`bit(n)`, `bit varying`", SourceType("varbit"), "0 and 1"),
    ("ranges and multiranges", SourceType("int4range", category="r"), "as printed"),
    ("composite types", SourceType("pair", category="c"), "as printed"),
    ("`xml`", SourceType("xml"), "as printed; of a declaration only what is named below"),
    ("`tsvector`, `tsquery`, geometric types", SourceType("tsvector"), "as printed"),
    ("any other type, those of extensions too", SourceType("public.hstore"), "as printed"),
)

TYPE_RULES = """\
Every value arrives exact, or its table parks with the fault `value_out_of_domain`. How a column is held follows from its
type alone, never from a value:

1. A column with `"map_as": "text"` is `VARCHAR` and holds what PostgreSQL prints.
2. A domain is held as its base type; an array of one dimension as a list of what its elements are held as.
3. A type that DuckDB holds exactly is held in it.
4. Everything else is `VARCHAR` and holds what PostgreSQL prints under the settings named below. That is exact: PostgreSQL
   reads the same text back into the same value, with one exception, the declaration of an `xml` value.

"As printed" means under `DateStyle ISO`, `IntervalStyle postgres`, `TimeZone UTC`, `extra_float_digits 3`,
`bytea_output hex`, `lc_monetary C`, on every session that we read with.

PostgreSQL keeps an XML declaration within an `xml` value and prints it in part, in its log and in `COPY` as well. What arrives is what is
printed, the same by copy, insert and update, and on a PostgreSQL target too:

- `encoding` is never printed; the text is in UTF-8.
- A declaration with `version="1.0"` and no `standalone` is not printed at all, nor is one line feed right behind it.
- With `standalone`, or another version, it is printed: `<?xml version="1.0" standalone="yes"?>`.

Everything behind the declaration arrives as it was written. `x::text` on the source shows the declaration as well; who needs it keeps the
document in a `text` column.

An array column declares no number of dimensions on PostgreSQL. A value with more than one dimension, or whose index does
not begin at 1, is not a list: it parks the table. The remedy for every parked value is `"map_as": "text"` for its column in
the subscription, then a reload of the table; or, table by table, `"refused_rows": "set_aside"`, with which such rows are kept
beside the table.
"""


def types_page() -> str:
    rows = [(label, f"`{duckdb_type(value_type(Column('v', source, 1)))}`", note) for label, source, note in TYPES]
    return _page("Types: PostgreSQL to DuckDB", TYPE_RULES, _table(("PostgreSQL", "DuckDB", "remarks"), rows))


def settings_page() -> str:
    intro = (
        "Each setting is read from the environment variable. A default of — means that there is none, or that it is made\n"
        "at the first start.\n"
    )
    parts = [intro]
    for title, model in (("Server", Settings), ("Engine", EngineSettings)):
        parts += [f"## {title}\n", _table(("variable", "default", "meaning"), _settings_rows(model))]
    return _page("Settings", *parts)


def faults_page() -> str:
    intro = (
        "The `code` of a state or a problem is one of these. Each has one policy: `retry` tries again with growing pauses,\n"
        "`park_table` takes one table out and lets the others go on, `fail_subscription` stops the subscription until someone\n"
        "has looked, `stop_engine` ends the engine.\n"
    )
    rows = [(f"`{kind.value}`", f"`{POLICIES[kind].action.value}`", POLICIES[kind].remedy) for kind in FaultKind]
    return _page("Faults", intro, _table(("code", "policy", "remedy"), rows))


def _settings_rows(model: type[BaseSettings]) -> list[tuple[str, str, str]]:
    prefix = str(model.model_config.get("env_prefix", ""))
    return [
        (f"`{prefix}{name.upper()}`", _default(field.default), field.description or "")
        for name, field in model.model_fields.items()
    ]


def _default(value: Any) -> str:
    if isinstance(value, Path):
        home = Path.home()
        return f"`~/{value.relative_to(home)}`" if value.is_relative_to(home) else f"`{value}`"
    if value is PydanticUndefined or value is None or str(value) == "":
        return "—"
    return f"`{value}`"


def _page(title: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", NOTICE + "\n", *parts])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def architecture_page() -> str:
    """The page as it stands, with the states written anew between their marks."""
    before, _, rest = (FOLDER.parent / "ARCHITECTURE.md").read_text(encoding="utf-8").partition(STATES_BEGIN)
    behind = rest.partition(STATES_END)[2]
    tables = _states("table", TableState, table_state.ARROWS)
    subscriptions = _states("subscription", SubscriptionState, subscription_state.ARROWS)
    return f"{before}{STATES_BEGIN}\n{tables}\n{subscriptions}{STATES_END}{behind}"


def _states(what: str, states: Iterable[StrEnum], arrows: Mapping[tuple[Any, Any], StrEnum]) -> str:
    rows = []
    for state in states:
        leading: dict[StrEnum, list[str]] = {}
        for (before, event), after in arrows.items():
            if before is state:
                leading.setdefault(after, []).append(event.value)
        rows.append(
            (f"`{state.value}`", ", ".join(f"{' / '.join(e)} → `{a.value}`" for a, e in leading.items()) or "—")
        )
    return _table((what, "what happens → what it is then"), rows)


PAGES: dict[str, Callable[[], str]] = {
    "types.md": types_page,
    "settings.md": settings_page,
    "faults.md": faults_page,
    "../ARCHITECTURE.md": architecture_page,
}


def main() -> None:
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
