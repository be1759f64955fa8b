"""What travels on the control channel: both ways without loss, and secrets only where they must."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest
from pydantic import ValidationError

from engine.link.message import encode
from engine.link.messages import COMMANDS, REPORTS, Assign, Demand, NowBody, Progress, ReportBundle, TableStateReport
from engine.model.identity import TableName
from engine.model.position import Lsn
from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    BatchPolicy,
    LanePolicy,
    QueueMode,
    SubscriptionSpec,
    TableSpec,
)

_ASSIGN = {
    "kind": "assign",
    "name": "orders",
    "epoch": 7,
    "source": {
        "name": "shop",
        "kind": "postgres",
        "settings": {"host": "h", "port": 5432},
        "secrets": {"password": "s3cret"},
    },
    "target": {"name": "mart", "kind": "duckdb", "settings": {"path": "a.db"}},
    "tables": [
        {
            "table": "t0a",
            "source": {"schema": "public", "name": "a\u2028b"},
            "target": {"schema": "main", "name": "a"},
            "key": ["id"],
            "operations": ["insert"],
            "map_as": {"n": "text"},
        }
    ],
    "slot": "penstock_orders_1",
    "queue_mode": "persist",
    "batch": {"max_age_ms": 50},
    "apply": {"mode": "grouped", "policy": "optimistic", "lanes": 4, "group_size": 500},
}


def test_an_assignment_becomes_the_engines_own_specification() -> None:
    spec = Assign.model_validate(_ASSIGN).to_spec()
    assert isinstance(spec, SubscriptionSpec)
    assert spec.source.secrets == {"password": "s3cret"}
    assert spec.source.settings == {"host": "h", "port": 5432}
    assert spec.queue_mode is QueueMode.PERSIST
    assert spec.batch == BatchPolicy(max_age_ms=50)
    assert spec.apply == ApplyPolicy(ApplyMode.GROUPED, LanePolicy.OPTIMISTIC, lanes=4, group_size=500)
    assert isinstance(spec.apply.mode, ApplyMode)
    assert isinstance(spec.apply.policy, LanePolicy)
    assert spec.tables == (
        TableSpec(
            table=spec.tables[0].table,
            source=TableName("public", "a\u2028b"),
            target=TableName("main", "a"),
            key=("id",),
            operations=frozenset({"insert"}),
            map_as={"n": "text"},
        ),
    )


def test_batch_defaults_are_those_of_the_model() -> None:
    spec = Assign.model_validate({**_ASSIGN, "batch": {}}).to_spec()
    assert spec.batch == BatchPolicy()


def test_apply_defaults_are_those_of_the_model() -> None:
    older = {name: value for name, value in _ASSIGN.items() if name != "apply"}
    assert Assign.model_validate(older).to_spec().apply == ApplyPolicy()
    assert Assign.model_validate({**_ASSIGN, "apply": {}}).to_spec().apply == ApplyPolicy()


def test_an_apply_mode_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValidationError):
        Assign.model_validate({**_ASSIGN, "apply": {"mode": "sorted"}})


def test_secrets_are_on_the_wire_and_nowhere_else() -> None:
    assign = Assign.model_validate(_ASSIGN)
    assert "s3cret" in encode(assign).decode()
    assert COMMANDS.validate_json(encode(assign)) == assign
    for shown in (
        repr(assign),
        str(assign),
        assign.model_dump_json(),
        str(assign.model_dump()),
        repr(assign.to_spec()),
    ):
        assert "s3cret" not in shown


def test_secrets_of_a_connection_inside_other_commands_are_hidden_too() -> None:
    """And an engine's own fields of a connection or a table do not travel."""
    connection, table = _ASSIGN["source"], _ASSIGN["tables"][0]  # type: ignore[index]
    for command in (
        {"kind": "preflight", "request_id": "r", "role": "source", "connection": connection, "tables": [table]},
        {"kind": "discover", "request_id": "r", "connection": connection},
        {"kind": "forget", "subscription": "orders", "assignment": _ASSIGN},
    ):
        message = COMMANDS.validate_python(command)
        line = encode(message).decode()
        assert "s3cret" in line
        assert "map_others_as" not in line
        assert COMMANDS.validate_json(line) == message
        for shown in (repr(message), str(message.model_dump()), str(message.model_dump(mode="json"))):
            assert "s3cret" not in shown


def test_an_assignment_has_every_field_of_the_specification_with_its_default() -> None:
    own, spec = Assign.model_fields, {each.name: each for each in fields(SubscriptionSpec)}
    assert own.keys() - {"kind", "capture"} == spec.keys()
    for name, each in spec.items():
        if not own[name].is_required():
            default = each.default_factory() if each.default is MISSING else each.default  # type: ignore[misc]
            assert own[name].default == default, name


def test_one_message_is_one_line() -> None:
    assert b"\n" not in encode(Assign.model_validate(_ASSIGN))


def test_positions_are_text_on_the_wire_and_ordered_values_inside() -> None:
    line = encode(Demand(subscription="s", position=Lsn(0x16B3748)))
    assert b'"position":"0/16B3748"' in line
    demand = COMMANDS.validate_json(line)
    assert isinstance(demand, Demand)
    assert demand.position == Lsn(0x16B3748)


@pytest.mark.parametrize("text", ["", "0", "0/", "x/1", "0/123456789", "-1/0"])
def test_a_malformed_position_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        COMMANDS.validate_python({"kind": "demand", "subscription": "s", "position": text})


def test_fields_of_a_newer_release_are_passed_over() -> None:
    demand = COMMANDS.validate_python({"kind": "demand", "subscription": "s", "position": "0/1", "colour": "blue"})
    assert demand == Demand(subscription="s", position=Lsn(1))


def test_a_bundle_keeps_order_and_kinds() -> None:
    state = TableStateReport(subscription="s", epoch=1, table="t1", schema="public", name="orders", state="live")
    progress = REPORTS.validate_python(
        {"kind": "progress", "subscription": "s", "epoch": 1, "applied": "0/5", "at": "2026-01-01T00:00:00Z"}
    )
    bundle = ReportBundle(sequence=3, reports=(state, progress))
    again = ReportBundle.model_validate_json(encode(bundle))
    assert again == bundle
    assert isinstance(again.reports[1], Progress)


def test_positions_of_several_logs_are_on_the_wire_only_where_there_are_several() -> None:
    one = NowBody(position=Lsn(7))
    several = NowBody(position=Lsn(7), of_logs={"n1": Lsn(7), "n2": Lsn(9)})
    assert b"of_logs" not in encode(one)
    assert NowBody.model_validate_json(encode(several)) == several
    demand = Demand(subscription="s", log="n2", position=Lsn(9))
    assert COMMANDS.validate_json(encode(demand)) == demand
