"""How the text of clients is cut into statements, and what each of them asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sql_endpoint.postgres.statements import (
    Action,
    cast_of_parameters,
    cast_parameters,
    command_of,
    parameter_count,
    split,
    tokens,
    unquoted,
)

_PIECES = st.sampled_from(
    [
        "select",
        " ",
        "\n",
        ";",
        "'a;b'",
        "'it''s'",
        "E'\\';'",
        '"x;y"',
        "$1",
        "$$;$$",
        "$t$ ; $$ $t$",
        "--;\n",
        "/* ; /* ; */ */",
        "'",
        "é",
        "*",
        "$",
        "/*",
    ]
)


@given(st.lists(_PIECES).map("".join))
def test_the_tokens_are_the_text(sql: str) -> None:
    assert "".join(token.text for token in tokens(sql)) == sql


@given(st.text())
def test_any_text_is_cut(sql: str) -> None:
    assert "".join(token.text for token in tokens(sql)) == sql
    assert all(statement.strip() for statement in split(sql))


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("", []),
        (" ; ;; ", []),
        ("-- nothing", []),
        ("/* ; */;", []),
        ("select 1", ["select 1"]),
        ("select 1; select 2;", ["select 1", "select 2"]),
        ("select ';'; select \";\"", ["select ';'", 'select ";"']),
        ("select 'it''s;'", ["select 'it''s;'"]),
        ("select E'\\';'; x", ["select E'\\';'", "x"]),
        ("select '\\'; x", ["select '\\'", "x"]),
        ("select $$;$$; x", ["select $$;$$", "x"]),
        ("select $a$;$$;$a$; x", ["select $a$;$$;$a$", "x"]),
        ("select 1 -- ;\n; x", ["select 1 -- ;", "x"]),
        ("select /* /* ; */ ; */ 1; x", ["select /* /* ; */ ; */ 1", "x"]),
        ("select 'open; x", ["select 'open; x"]),
        ("select a$1; x", ["select a$1", "x"]),
    ],
)
def test_statements(sql: str, statements: list[str]) -> None:
    assert split(sql) == statements


@pytest.mark.parametrize(
    ("sql", "action", "rest"),
    [
        ("select 1", Action.QUERY, "select 1"),
        ("", Action.EMPTY, ""),
        ("-- only this", Action.EMPTY, "-- only this"),
        ("begin", Action.BEGIN, ""),
        ("BEGIN TRANSACTION READ ONLY", Action.BEGIN, "TRANSACTION READ ONLY"),
        ("start transaction isolation level serializable", Action.BEGIN, "isolation level serializable"),
        ("COMMIT", Action.COMMIT, ""),
        ("end", Action.COMMIT, ""),
        ("/* x */ rollback", Action.ROLLBACK, ""),
        ("rollback to savepoint a", Action.ROLLBACK_TO, "savepoint a"),
        ("set a = 1", Action.SET, "a = 1"),
        ("set local a = 1", Action.SET_LOCAL, "a = 1"),
        ("set session a = 1", Action.SET, "a = 1"),
        (
            "set session characteristics as transaction read only",
            Action.SET,
            "session characteristics as transaction read only",
        ),
        ("set session authorization ann", Action.SET, "session authorization ann"),
        ("show penstock.position", Action.SHOW, "penstock.position"),
        ("declare c cursor for select 1", Action.DECLARE, "c cursor for select 1"),
        ("endless", Action.QUERY, "endless"),
        ('"begin"', Action.QUERY, '"begin"'),
    ],
)
def test_commands(sql: str, action: Action, rest: str) -> None:
    command = command_of(sql)
    assert (command.action, command.rest) == (action, rest)


def test_settings_of_one_statement_are_read_from_its_hint() -> None:
    command = command_of("/*+ penstock.freshness = latest, penstock.timeout_ms='500' */ select 1")
    assert command.hints == {"penstock.freshness": "latest", "penstock.timeout_ms": "500"}
    assert command.action is Action.QUERY
    assert command_of("select /*+ penstock.freshness = latest */ 1").hints == {}
    assert command_of("/* penstock.freshness = latest */ select 1").hints == {}


def test_parameters_are_counted_and_cast_outside_of_strings_only() -> None:
    sql = "select $1, '$9', \"$8\", $2::text, $$ $7 $$, a$6 -- $5"
    assert parameter_count(sql) == 2
    assert cast_of_parameters(sql) == {2: "text"}
    assert cast_of_parameters("$1 :: /* x */ BIGINT + $3 + $2::int4 + '$4::int'") == {1: "bigint", 2: "int4"}
    assert cast_of_parameters("x = any($1::oid[]) and $2::text") == {1: "oid[]", 2: "text"}
    casts = "$1::double precision[], $2::numeric(38, 10)[], $3::timestamp(3) with time zone, $4::character varying(9) [], $5::time"
    assert cast_of_parameters(casts) == {
        1: "double precision[]", 2: "numeric[]", 3: "timestamp with time zone", 4: "character varying[]", 5: "time",
    }  # fmt: skip
    assert cast_of_parameters("$1::") == cast_of_parameters("$1::(") == {}
    assert cast_of_parameters("$1::int(") == {1: "int"}
    assert cast_parameters(sql, {1: "INTEGER"}) == sql.replace("$1", "CAST($1 AS INTEGER)")


@pytest.mark.parametrize(
    ("value", "plain"), [("'a''b'", "a'b"), ('"a"', "a"), ("a", "a"), (" 'a' ", "a"), ("'", "'"), ("''", "")]
)
def test_values_lose_their_quotes(value: str, plain: str) -> None:
    assert unquoted(value) == plain
