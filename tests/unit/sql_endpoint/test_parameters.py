"""SET, SHOW and RESET of the SQL endpoint."""

from __future__ import annotations

import pytest

from engine.sql_endpoint.postgres.errors import SqlError
from engine.sql_endpoint.postgres.parameters import REPORTED, SessionParameters, milliseconds


def _shown(parameters: SessionParameters, name: str) -> str:
    found = parameters.show(name)
    assert found is not None
    return found[1]


def test_every_reported_parameter_has_a_value() -> None:
    assert set(REPORTED) <= SessionParameters().values.keys()


def test_what_is_set_in_a_transaction_is_undone_with_it() -> None:
    parameters = SessionParameters()
    parameters.set("penstock.freshness = 'latest'")
    parameters.begin()
    parameters.set("penstock.freshness to any")
    parameters.set("penstock.timeout_ms = 5", local=True)
    parameters.end(committed=False)
    assert (_shown(parameters, "penstock.freshness"), _shown(parameters, "penstock.timeout_ms")) == ("latest", "30000")
    parameters.begin()
    parameters.set("penstock.freshness to any")
    parameters.set("penstock.timeout_ms = 5", local=True)
    assert _shown(parameters, "penstock.timeout_ms") == "5"
    parameters.end(committed=True)
    assert (_shown(parameters, "penstock.freshness"), _shown(parameters, "penstock.timeout_ms")) == ("any", "30000")


def test_reset_returns_to_what_the_client_asked_for_at_its_start() -> None:
    parameters = SessionParameters()
    parameters.start(
        {"user": "ann", "options": "-c penstock.freshness=latest --statement-timeout=5s", "application_name": "psql"}
    )
    parameters.set("penstock.freshness = any")
    parameters.set("application_name = 'x'")
    parameters.reset("ALL")
    assert _shown(parameters, "penstock.freshness") == "latest"
    assert _shown(parameters, "application_name") == "psql"
    assert parameters.statement_timeout_ms() == 5000


def test_the_settings_of_a_role_are_below_those_of_the_session() -> None:
    role = {"penstock.freshness": "latest", "penstock.timeout_ms": "5s", "search_path": "public", "my.own": "1"}
    parameters = SessionParameters()
    parameters.start({"user": "ann", "options": "-c penstock.timeout_ms=7", "application_name": "psql"}, role)
    assert parameters.freshness({}) | {"on_timeout": "", "on_unavailable": ""} == {
        "mode": "latest", "timeout_ms": 7, "on_timeout": "", "on_unavailable": "",
    }  # fmt: skip
    for back in ("penstock.freshness TO DEFAULT", None):
        parameters.set("penstock.freshness = any")
        parameters.set("my.own = 2")
        assert (_shown(parameters, "penstock.freshness"), _shown(parameters, "my.own")) == ("any", "2")
        if back is None:
            parameters.reset("ALL")
            assert _shown(parameters, "my.own") == "1"
        else:
            parameters.set(back)
        assert _shown(parameters, "penstock.freshness") == "latest"
    assert _shown(parameters, "penstock.timeout_ms") == "7"
    assert _shown(parameters, "penstock.on_timeout") == "error"


def test_a_freshness_that_is_none_is_refused_wherever_it_is_given() -> None:
    for give in (
        lambda: SessionParameters().set("penstock.freshness = 'latests'"),
        lambda: SessionParameters().set("penstock.freshness = latests", local=True),
        lambda: SessionParameters().start({"options": "-c penstock.freshness=latests"}),
        lambda: SessionParameters().start({"penstock.freshness": "latests"}),
        lambda: SessionParameters().start({}, {"penstock.freshness": "latests"}),
        lambda: SessionParameters().freshness({"penstock.freshness": "latests"}),
    ):
        with pytest.raises(SqlError, match=r'parameter "penstock\.freshness" cannot be "latests"') as refused:
            give()
        assert refused.value.hint == "It can be any, latest, or a position of the source, like 0/16B3748."
    for text in ("any", "LATEST", "0/16B3748", "ab/CD", "4711"):
        assert SessionParameters().set(f"penstock.freshness = '{text}'") is None


def test_an_invalid_setting_of_a_role_refuses_the_session() -> None:
    with pytest.raises(SqlError, match="there is no parameter"):
        SessionParameters().start({}, {"penstock.fresh": "latest"})


def test_what_the_endpoint_notes_outlives_a_reset() -> None:
    parameters = SessionParameters()
    parameters.start({})
    parameters.note("session_authorization", "ann")
    parameters.reset("ALL")
    assert _shown(parameters, "session_authorization") == "ann"


def test_the_freshness_of_a_statement() -> None:
    parameters = SessionParameters()
    assert parameters.freshness({})["mode"] == "any"
    parameters.set("penstock.freshness = 'latest'")
    parameters.set("penstock.timeout_ms = '2s'")
    assert parameters.freshness({}) | {"on_timeout": "", "on_unavailable": ""} == {
        "mode": "latest", "timeout_ms": 2000, "on_timeout": "", "on_unavailable": "",
    }  # fmt: skip
    asked = parameters.freshness({"penstock.freshness": "0/16B3748", "penstock.timeout_ms": "7"})
    assert (asked["mode"], asked["position"], asked["timeout_ms"]) == ("position", "0/16B3748", 7)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("penstock.fresh = latest", "42704"),
        ("penstock.timeout_ms = soon", "22023"),
        ("penstock.position = '0/1'", "55P02"),
        ("penstock.on_timeout = perhaps", "22023"),
        ("penstock.freshness = ''", "22023"),
        ("penstock.freshness = 'latests'", "22023"),
        ("penstock.freshness = '0/16B3748x'", "22023"),
        ("client_encoding = latin1", "22023"),
        ("standard_conforming_strings = off", "22023"),
        ("transaction_isolation = 'repeatable read'", "0A000"),
        ("transaction isolation level serializable", "0A000"),
        ("transaction read write", "25006"),
        ("default_transaction_read_only = off", "22023"),
        ("role postgres", "0A000"),
        ("DateStyle = german", "22023"),
        ("memory_limit = '10GB'", "42704"),
        ("nonsense", "42601"),
        ("role=postgres", "22023"),
        ("session_authorization = postgres", "55P02"),
        ("statement_timeout = '" + "9" * 400 + "'", "22023"),
        ('"my own.x" = 1', "42704"),
    ],
)
def test_what_cannot_be_set(text: str, state: str) -> None:
    with pytest.raises(SqlError) as refused:
        SessionParameters().set(text)
    assert refused.value.state == state


@pytest.mark.parametrize(
    "text",
    [
        "names 'utf8'", "time zone 'UTC'", "timezone to utc", "extra_float_digits = 3", "datestyle = iso, mdy", "my.own = 1",
        "work_mem = '1GB'",
        "session characteristics as transaction isolation level read committed", "role none", "client_encoding to default",
    ],
)  # fmt: skip
def test_what_clients_set(text: str) -> None:
    assert SessionParameters().set(text) is None


def test_another_time_zone_is_answered_with_a_warning() -> None:
    parameters = SessionParameters()
    assert "UTC" in (parameters.set("time zone 'Europe/Berlin'") or "")
    assert _shown(parameters, "timezone") == "UTC"


@pytest.mark.parametrize(("text", "ms"), [("0", 0), ("250", 250), ("2s", 2000), ("1 min", 60_000), ("500us", 0)])
def test_durations(text: str, ms: int) -> None:
    assert milliseconds(text) == ms
