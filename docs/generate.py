"""Writes the reference pages whose content is in the code. `python docs/generate.py` in the project folder; `--check` only compares.

A test compares the pages with what this renders, so a page never says anything else than the code does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from engine.model import subscription_state, table_state
from engine.model.fault import FaultKind
from engine.model.schema import Column, SourceType
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from engine.model.values import value_type
from engine.platform.fault_policy import POLICIES, RESERVED, Action
from engine.platform.settings import EngineSettings
from engine.targets.duckdb.types import duckdb_type
from server.cli.exit_codes import ExitCode
from server.cli.main import app
from server.settings import Settings

FOLDER = Path(__file__).resolve().parent
STATES_BEGIN, STATES_END = "<!-- states, written by docs/generate.py -->", "<!-- end of states -->"
OPENAPI = FOLDER.parent / "tests" / "golden" / "openapi.json"
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

RESERVED_MEANING = (
    "These codes are for kinds of source and target that this release does not have. It never reports them."
)

TYPE_RULES = """\
Every value arrives exact, or its table parks with the fault `value_out_of_domain`. Why:
[Why values travel as text](../explanation/values.md).

## Rules

How a column is held follows from its type alone, never from a value:

1. A column with `"map_as": "text"` is `VARCHAR` and holds what PostgreSQL prints.
2. A domain is held as its base type; an array of one dimension as a list of what its elements are held as.
3. A type that DuckDB holds exactly is held in it.
4. Everything else is `VARCHAR` and holds what PostgreSQL prints under the settings named below. That is exact: PostgreSQL
   reads the same text back into the same value, with one exception, the declaration of an `xml` value.

"As printed" means under `DateStyle ISO`, `IntervalStyle postgres`, `TimeZone UTC`, `extra_float_digits 3`,
`bytea_output hex`, `lc_monetary C`, on every session that Penstock reads with.

## Remedy for a parked value

`"map_as": "text"` for its column in the subscription, then a reload of the table; or, table by table,
`"refused_rows": "set_aside"`, with which such rows are [quarantined](../how-to/handle-rejected-rows.md).

## Arrays

An array column declares no number of dimensions on PostgreSQL. A value with more than one dimension, or whose index does
not begin at 1, is not a list: it parks the table.

## XML declarations

PostgreSQL keeps an XML declaration within an `xml` value and prints it in part, in its log and in `COPY` as well. What arrives is what is
printed, the same by copy, insert and update, and on a PostgreSQL target too:

- `encoding` is never printed; the text is in UTF-8.
- A declaration with `version="1.0"` and no `standalone` is not printed at all, nor is one line feed directly after it.
- With `standalone`, or another version, it is printed: `<?xml version="1.0" standalone="yes"?>`.

Everything after the declaration arrives as it was written. `x::text` on the source shows the declaration as well; to keep it,
store the document in a `text` column.

## PostgreSQL to PostgreSQL

Types are the source's own wherever every server has them, with their length or precision. Values travel as the source prints them, so
there is nothing that a column could not hold: NaN, infinities and arrays of any shape included. Your own types and those of
extensions, enums and composites among them, are `text`; so is every column with `"map_as": "text"`.

## PostgreSQL to DuckDB
"""


FAULT_GLOSSES = """\
Some codes have short names: `table_unfit` is an existing table that is incompatible, `target_foreign` progress of another source,
`too_many_set_aside` a full quarantine, `deferred_over_budget` a backlog over its budget, `net_change_anomaly` a row that is missing or
duplicated, `copy_lost` a snapshot that is gone.
"""

ACTION_MEANINGS: Mapping[Action, str] = {
    Action.RETRY: "It is tried again, with growing pauses.",
    Action.FAIL_SUBSCRIPTION: "The subscription stops until an operator acts.",
    Action.PARK_TABLE: (
        "One table leaves the replication, the others continue: [Handle a parked table](../how-to/handle-a-parked-table.md)."
    ),
    Action.TELL: "It is reported; nothing stops.",
    Action.STOP_ENGINE: "The engine ends.",
}

SUBSCRIPTION_MEANINGS: Mapping[SubscriptionState, tuple[str, str]] = {
    SubscriptionState.CREATED: ("declared, no engine has begun", "start an engine if it stays"),
    SubscriptionState.STARTING: (
        "connecting, or between two tries",
        "read `reason`, if there is one; see [Faults](faults.md)",
    ),
    SubscriptionState.RUNNING: ("replicates", "nothing"),
    SubscriptionState.PAUSING: ("on its way to `paused`", "nothing"),
    SubscriptionState.PAUSED: (
        "nothing is read or applied; the slot stays and holds the source's log; the target answers queries",
        "`desired_state: running`",
    ),
    SubscriptionState.STOPPING: ("on its way to `stopped`", "nothing"),
    SubscriptionState.STOPPED: ("as paused, and the target file is closed", "`desired_state: running`"),
    SubscriptionState.FAILED: (
        "a fault needs an operator: `code`, `reason`, `remedy`",
        "the remedy, then `desired_state: running`",
    ),
}
TABLE_MEANINGS: Mapping[TableStateKind, tuple[str, str]] = {
    TableStateKind.REGISTERED: ("waits for its copy", "nothing"),
    TableStateKind.COPYING: ("is copied", "nothing; `copied` shows how far"),
    TableStateKind.CATCHING_UP: ("copied; the changes since are applied", "nothing"),
    TableStateKind.LIVE: ("as fresh as the subscription", "nothing"),
    TableStateKind.PAUSED: (
        "not applied; its changes are kept in the queue",
        "`desired_state: running` on the table",
    ),
    TableStateKind.RELOADING: (
        "copied again, because a user requested it or, if there is a `reason`, because its structure changed; the old rows are"
        " readable until the swap",
        "nothing",
    ),
    TableStateKind.PARKED: (
        "stopped by a fault, the others continue; its rows stay as they were",
        "the remedy, then a retry; an approval with `schema_change_waiting`",
    ),
    TableStateKind.REMOVED: (
        "no longer followed; `target_table` says whether its table on the target was dropped",
        "add it again to copy it again",
    ),
}


def types_page() -> str:
    rows = [(label, f"`{duckdb_type(value_type(Column('v', source, 1)))}`", note) for label, source, note in TYPES]
    return _page("Types", TYPE_RULES, _table(("PostgreSQL", "DuckDB", "remarks"), rows))


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
        "The `code` of a state or a problem is one of these. Each has one policy, and is listed under it with its remedy.\n\n"
        f"{FAULT_GLOSSES}"
    )
    parts = [intro]
    for action, meaning in ACTION_MEANINGS.items():
        kinds = [kind for kind in FaultKind if POLICIES[kind].action is action and kind not in RESERVED]
        rows = [(f"`{kind.value}`", POLICIES[kind].remedy) for kind in kinds]
        if rows:
            parts += [f"## {action.value}\n", f"{meaning}\n", _table(("code", "remedy"), rows)]
    reserved = [
        (f"`{kind.value}`", POLICIES[kind].action.value, POLICIES[kind].remedy)
        for kind in FaultKind
        if kind in RESERVED
    ]
    parts += ["## Reserved\n", f"{RESERVED_MEANING}\n", _table(("code", "policy", "remedy"), reserved)]
    return _page("Faults", *parts)


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
    """The page on disk, with the states rendered again between their marks."""
    before, _, rest = (FOLDER.parent / "ARCHITECTURE.md").read_text(encoding="utf-8").partition(STATES_BEGIN)
    after = rest.partition(STATES_END)[2]
    tables = _states("table", TableStateKind, table_state.ARROWS)
    subscriptions = _states("subscription", SubscriptionState, subscription_state.ARROWS)
    return f"{before}{STATES_BEGIN}\n{tables}\n{subscriptions}{STATES_END}{after}"


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


def states_page() -> str:
    return _page(
        "States",
        "A subscription and each of its tables have a state; pure functions over these tables move them.\n",
        "## Subscriptions\n",
        _meanings(SUBSCRIPTION_MEANINGS),
        "## Tables\n",
        _meanings(TABLE_MEANINGS),
        "What holds log while tables are paused or copied: [Budget the slot](../how-to/budget-the-slot.md#the-queues-own-budget).\n",
        "## Transitions of a table\n",
        _states("table", TableStateKind, table_state.ARROWS),
        "## Transitions of a subscription\n",
        _states("subscription", SubscriptionState, subscription_state.ARROWS),
    )


def _meanings(meanings: Mapping[Any, tuple[str, str]]) -> str:
    rows = [(f"`{state.value}`", means, to_do) for state, (means, to_do) in meanings.items()]
    return _table(("state", "means", "to do"), rows)


EXIT_MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.DIFFERENT: "a difference was found; a sequence could not be brought forward; a check of a connection found an error;"
    " a child process could not be kept running",
    ExitCode.USAGE: "wrong options or settings, a file that cannot be read, or a control database of another version",
    ExitCode.REFUSED: "the server refused the request: detail and remedy are printed",
    ExitCode.TIMEOUT: "the deadline passed first",
    ExitCode.UNREACHABLE: "the wait cannot be satisfied: subscription or table is paused, parked or failed; nothing was compared; a table"
    " was left out although all were required",
    ExitCode.NO_SERVER: "no server answers at the address",
    ExitCode.PIPELINE: "the server answers, but a database, the engine or the pipeline does not",
    ExitCode.INTERRUPTED: "interrupted",
}
SHARED_OPTIONS = ("--url", "--token", "--json", "--subscription")


WITHOUT_COMMAND = {
    "caller_get": "the console shows whose token it has",
    "engines_answer": "for engines",
    "engines_commands": "for engines",
    "engines_put_result": "for engines",
    "engines_register": "for engines",
    "engines_positions": "for engines",
    "engines_report": "for engines",
    "sql_endpoint_login": "for engines",
    "sql_endpoint_statement": "for engines",
    "freshness_get": "`status` shows positions and lag",
    "freshness_waits_cancel": "`wait` ends with Ctrl-C",
    "freshness_waits_get": "`wait` stays until the end",
    "history_get": "figures for charts of the console",
    "reloads_cancel": "rare",
    "reloads_get": "`tables` shows the progress",
    "reloads_list": "`tables` shows the progress, `events` what was reloaded",
    "schema_versions_list": "`events` shows changes of structure",
    "table_reloads_cancel": "rare",
    "table_reloads_get": "`tables` shows the progress",
    "table_reloads_list": "`tables` shows the progress, `events` what was reloaded",
    "verifications_cancel": "rare",
    "verifications_get": "`verify` stays until the end",
    "health_live": "for orchestrators",
    "health_ready": "for orchestrators",
    "metrics_get": "for Prometheus",
}
"""Operations of REST that no command uses, and why."""


def cli_page() -> str:
    """Every command with its options, from the command line's own help."""
    root = typer.main.get_command(app)
    shared = _options(root, only=SHARED_OPTIONS)
    parts = [
        "`penstock COMMAND --help` prints the same. Options that most commands have:\n",
        _table(("option", "meaning"), [(f"`{name}`", text) for name, text in sorted(shared.items())]),
        "## Exit codes\n",
        _table(("code", "means"), [(f"`{code.value}`", EXIT_MEANINGS[code]) for code in ExitCode]),
    ]
    for words, command in _commands(root, ("penstock",)):
        parts += [f"## {' '.join(words)}\n", *_described(command)]
        rows = [(f"`{name}`", text) for name, text in _options(command, without=SHARED_OPTIONS).items()]
        if rows:
            parts.append(_table(("argument or option", "meaning"), rows))
    rows = [(f"`{operation}`", why) for operation, why in WITHOUT_COMMAND.items()]
    parts += ["## Operations of REST without a command\n", _table(("operation", "why"), rows)]
    return _page("Command line", *parts)


def _commands(command: Any, words: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    """All commands below one, by their words; a group comes itself where it can run without a subcommand."""
    children: Mapping[str, Any] = getattr(command, "commands", {})
    if not children or (getattr(command, "invoke_without_command", False) and len(words) > 1):
        yield words, command
    for name, child in children.items():
        yield from _commands(child, (*words, name))


def _options(command: Any, *, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> dict[str, str]:
    """Names and help of arguments and options; with `only`, those of the whole tree."""
    children: Mapping[str, Any] = getattr(command, "commands", {}) if only else {}
    found: dict[str, str] = {}
    for child in children.values():
        found |= _options(child, only=only)
    for parameter in command.params:
        names = (*parameter.opts, *parameter.secondary_opts)
        if set(names) & set(without) or (only and not set(names) & set(only)):
            continue
        argument = parameter.param_type_name == "argument"
        found[parameter.name.upper() if argument else " / ".join(names)] = parameter.help or ""
    return found


def _described(command: Any) -> list[str]:
    """The help as Markdown; what is preformatted there is a block of code here."""
    text, _, block = (command.help or "").partition("\b")
    text = text.strip().removesuffix("Example of a file:").strip()
    return [text + "\n", *([f"```yaml\n{block.strip()}\n```\n"] if block.strip() else [])]


def rest_page() -> str:
    """Every call of the API, from the OpenAPI document that the tests hold it to."""
    document = json.loads(OPENAPI.read_text(encoding="utf-8"))
    calls: dict[str, list[tuple[str, str]]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            rows = calls.setdefault(call.get("tags", ["other"])[0], [])
            rows.append((f"`{method.upper()} {path}`", call.get("summary", "")))
    parts = [REST_INTRO]
    for tag, rows in calls.items():
        parts += [f"## {tag.capitalize()}\n", _table(("call", "does"), rows)]
    return _page("REST", *parts)


REST_INTRO = """\
A running server describes its API in `/api/v1/openapi.json` (OpenAPI, for any viewer or generator of clients): bodies, limits, examples.

## Conventions

- Errors are `application/problem+json` with a stable `code` and a `remedy`; 502, 503 and 504 mean a database or the pipeline.
- Lists are paged: `page_size`, `page_token`, and in the answer `items`, `next_page_token`.
- Resources have an `ETag`, changes honour `If-Match` (412). PUT creates or replaces; `If-None-Match: *` only creates.
- POSTs that create work accept `Idempotency-Key`.
- Positions are strings, times RFC 3339 in UTC; durations and sizes carry their unit in the name.
- A request carries `Authorization: Bearer TOKEN`: [Secure the server](../how-to/secure-the-server.md).
"""


PAGES: dict[str, Callable[[], str]] = {
    "reference/types.md": types_page,
    "reference/settings.md": settings_page,
    "reference/faults.md": faults_page,
    "reference/states.md": states_page,
    "reference/cli.md": cli_page,
    "reference/rest.md": rest_page,
    "../ARCHITECTURE.md": architecture_page,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only name the pages that differ; exit code 1 if any does")
    check = parser.parse_args().check
    different = []
    for name, render in PAGES.items():
        path, text = FOLDER / name, render()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and different:
        sys.exit(f"run python docs/generate.py: {', '.join(different)}")


if __name__ == "__main__":
    main()
