"""Every operation of the REST interface has a command, or a documented reason why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from docs.generate import WITHOUT_COMMAND
from server.cli.main import app

COMMANDS = {
    "alert_channels_delete": "alerts delete",
    "alert_channels_get": "alerts show",
    "alert_channels_list": "alerts list",
    "alert_channels_plan": "apply",
    "alert_channels_put": "apply",
    "alert_channels_test": "alerts test",
    "batches_list": "batches",
    "connection_kinds_list": "connections kinds",
    "connections_change_triggers_delete": "triggers remove",
    "connections_change_triggers_get": "triggers show",
    "connections_change_triggers_plan": "triggers plan",
    "connections_change_triggers_put": "triggers install",
    "connections_check": "connections check",
    "connections_ddl_capture_delete": "ddl-capture remove",
    "connections_ddl_capture_get": "ddl-capture show",
    "connections_ddl_capture_put": "ddl-capture install",
    "connections_delete": "connections delete",
    "connections_get": "export",
    "connections_list": "connections list",
    "connections_patch": "apply",
    "connections_plan": "apply",
    "connections_put": "apply",
    "connections_shared_tables": "tables shared",
    "connections_tables": "connections tables",
    "engines_list": "engines",
    "cycles_create": "cycles start",
    "cycles_get": "cycles show",
    "cycles_list": "cycles",
    "events_list": "events",
    "events_stream": "events",
    "freshness_goals_list": "goals show",
    "freshness_waits_create": "wait",
    "lag_explain": "lag explain",
    "ledger_get": "ledger",
    "nodes_list": "nodes",
    "queries_create": "query",
    "read_points_create": "read-point create",
    "read_points_delete": "read-point delete",
    "read_points_get": "read-point list",
    "read_points_list": "read-point list",
    "refused_row_retry": "refused retry",
    "refused_row_skip": "refused skip",
    "refused_rows_list": "refused list",
    "refused_rows_retry": "refused retry",
    "refused_rows_skip": "refused skip",
    "reloads_create": "subscriptions reload",
    "sample_source_delete": "sample remove",
    "sample_source_get": "sample show",
    "sample_source_put": "sample start",
    "sequences_advance": "sequences",
    "snapshot_schedule_delete": "snapshot schedule remove",
    "snapshot_schedule_get": "snapshot schedule show",
    "snapshot_schedule_put": "snapshot schedule set",
    "snapshots_create": "snapshot create",
    "snapshots_delete": "snapshot delete",
    "snapshots_get": "snapshot show",
    "snapshots_list": "snapshot list",
    "subscriptions_delete": "subscriptions delete",
    "subscriptions_get": "export",
    "subscriptions_list": "status",
    "subscriptions_patch": "subscriptions pause",
    "subscriptions_plan": "apply",
    "subscriptions_put": "apply",
    "table_approvals_create": "tables approve",
    "table_partitions_list": "tables partitions",
    "table_reloads_create": "tables reload",
    "table_retries_create": "tables retry",
    "tables_add": "tables add",
    "tables_completeness": "completeness",
    "tables_get": "tables remove",
    "tables_list": "tables",
    "tables_patch": "tables configure",
    "tables_plan": "tables configure",
    "tables_remove": "tables remove",
    "tickets_create": "ticket",
    "tickets_get": "ticket",
    "tickets_list": "ticket",
    "tokens_create": "token create",
    "tokens_list": "token list",
    "tokens_patch": "token configure",
    "tokens_revoke": "token revoke",
    "verifications_create": "verify",
    "verifications_list": "verifications list",
}


def test_every_operation_has_a_command_or_a_reason() -> None:
    document = json.loads(Path("tests/golden/openapi.json").read_text())
    operations = {item["operationId"] for path in document["paths"].values() for item in path.values()}
    assert operations == COMMANDS.keys() | WITHOUT_COMMAND.keys()
    assert not COMMANDS.keys() & WITHOUT_COMMAND.keys()


def test_every_command_exists() -> None:
    for name in COMMANDS.values():
        command: Any = typer.main.get_command(app)
        for word in name.split():
            assert word in command.commands, name
            command = command.commands[word]
