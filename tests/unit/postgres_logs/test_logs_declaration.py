"""The settings of a capture of several nodes: which are accepted, and what an engine is given of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.connectors import CONNECTIONS, source_kind
from engine.control.source_query import _able
from engine.kinds import Consistency
from engine.model.identity import TableName
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.model.target import QueryRefused
from engine.sources.postgres_log.declaration import PostgresLogCapture
from engine.sources.postgres_logs.declaration import (
    LONGEST_PATTERN,
    PARTITIONED_CONNECTION,
    POSTGRES_LOGS,
    PostgresLogsCapture,
)
from engine.sources.postgres_logs.log import Rules


def assert_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as raised:
        PostgresLogsCapture.model_validate(settings)
    (error,) = raised.value.errors()
    assert error["loc"] == tuple(settings)
    assert re.search(why, error["msg"])


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "at least 1"),
        ("(", "no[t]? a regular expression"),
        ("(?P<gtid>x)" + "y" * LONGEST_PATTERN, "at most 200"),
        ("^(.+)@", r"needs a group \(\?P<gtid>"),
        ("(?P<participants>.+)", r"needs a group \(\?P<gtid>"),
        ("(?P<gtid>.+)-(?P<node>.+)", "only the groups gtid and participants, not node"),
        ("(?P<gtid>.*)", "at least one character"),
        ("(?:(?P<gtid>[0-9]+)@)?", "at least one character"),
    ],
)
def test_a_pattern_that_finds_no_id_is_refused(pattern: str, why: str) -> None:
    assert_refused({"gid_pattern": pattern}, why)


@given(pattern=st.text(max_size=30) | st.text("()?P<>gtid.+*[]{}\\|^$0,1", max_size=30))
def test_what_is_accepted_compiles_and_has_the_group(pattern: str) -> None:
    try:
        accepted = PostgresLogsCapture(gid_pattern=pattern).gid_pattern
    except ValidationError:
        return
    assert accepted == pattern
    assert "gtid" in re.compile(accepted).groupindex


@pytest.mark.parametrize("prefix", ["penstock", "penstock.ddl", "", "a\x00b", "x" * (LONGEST_PATTERN + 1)])
def test_prefixes_that_no_application_uses_are_refused(prefix: str) -> None:
    assert_refused({"own_prefix": prefix}, ".")


def test_an_engine_is_given_flat_settings_and_the_guard_of_a_single_log() -> None:
    usual = PostgresLogsCapture()
    assert usual.assigned()["capture"] == {"kind": "postgres_logs", "settings": {"order": "causal"}}
    given_all = PostgresLogsCapture(
        order="strict", gid_pattern="^(?P<gtid>.+)@(?P<participants>.+)$", own_prefix="gtid", slot_budget_bytes=2**30
    )
    assert given_all.assigned()["capture"]["settings"] == {
        "order": "strict",
        "gid_pattern": "^(?P<gtid>.+)@(?P<participants>.+)$",
        "own_prefix": "gtid",
    }
    single = PostgresLogCapture(slot_budget_bytes=2**30)
    shared = ("slot_budget_bytes", "guard")
    assert [given_all.assigned()[name] for name in shared] == [single.assigned()[name] for name in shared]
    assert given_all.log_budget() == single.log_budget() == (2**30, single.guard.warn_share)
    assert "origin" not in given_all.assigned()


def test_rows_name_the_own_part_in_place_of_messages() -> None:
    capture = PostgresLogsCapture(own_table="public.global_transactions")
    assert capture.assigned()["capture"]["settings"] == {
        "order": "causal",
        "own_table": "public.global_transactions",
        "own_column": "gtid",
    }
    assert capture.shown_column() == (TableName("public", "global_transactions"), "gtid")
    dotted = PostgresLogsCapture(own_table="ops.a.b", own_column="id")
    assert dotted.shown_column() == (TableName("ops", "a.b"), "id")
    assert PostgresLogsCapture().shown_column() is None
    assert PostgresLogsCapture.fixed == {"gid_pattern", "own_prefix", "own_table", "own_column"}
    rules = Rules.of(
        ConnectionSpec(
            "shops", "partitioned", capture=CaptureSpec("postgres_logs", dotted.assigned()["capture"]["settings"])
        )
    )
    assert (rules.own_prefix, rules.own_rows) == (None, (TableName("ops", "a.b"), "id"))


@pytest.mark.parametrize("name", ["", "global_transactions", ".x", "public.", "a.b\x00"])
def test_a_table_has_a_schema_and_a_name(name: str) -> None:
    assert_refused({"own_table": name}, ".")


@pytest.mark.parametrize(
    ("given_both", "why"),
    [
        ({"own_table": "public.t", "own_prefix": "gtid"}, "not both"),
        ({"own_column": "id"}, "own_table, which is not given"),
    ],
)
def test_settings_of_the_own_part_exclude_each_other(given_both: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        PostgresLogsCapture.model_validate(given_both)


def test_what_the_kind_promises_and_does_not_have() -> None:
    kind = CONNECTIONS["partitioned"]
    assert (kind.source, kind.target, kind.captures, kind.dialect) == (True, False, ("postgres_logs",), None)
    assert (kind.nodes_of, kind.own_schemas) == ("postgres", CONNECTIONS["postgres"].own_schemas)
    assert [each.name for each in CONNECTIONS.values() if each.nodes_of is not None] == [PARTITIONED_CONNECTION.name]
    assert PostgresLogsCapture().promised() is Consistency.TRANSACTIONS
    assert PostgresLogsCapture.keeps_folder
    assert source_kind(ConnectionSpec("shops", "partitioned")) is POSTGRES_LOGS


def test_readers_statements_do_not_run_on_it() -> None:
    with pytest.raises(QueryRefused, match="runs no SQL") as raised:
        _able(POSTGRES_LOGS)
    assert raised.value.code == "source_query_unsupported"
