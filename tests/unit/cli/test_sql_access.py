"""What a person pastes to read copies by SQL, and ports that cannot be used."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

from server.cli.sql_access import SqlPorts


def test_a_line_for_each_protocol_names_the_file_with_the_token() -> None:
    by_psql, by_flight = SqlPorts(5433, 5434).lines("shop", Path("/data of/admin.token"))
    assert shlex.split(by_psql.removeprefix("SQL clients: ")) == [
        "PGPASSWORD=$(cat", "/data of/admin.token)", "psql", "host=127.0.0.1 port=5433 user=preset-admin dbname=shop",
    ]  # fmt: skip
    assert by_flight == (
        "Flight SQL: grpc://127.0.0.1:5434 (user preset-admin, password in /data of/admin.token, call header penstock-subscription: shop)"
    )


def test_without_authentication_there_is_no_password() -> None:
    assert SqlPorts(5433, 5434).lines("shop", None) == [
        'SQL clients: psql "host=127.0.0.1 port=5433 user=preset-admin dbname=shop"',
        "Flight SQL: grpc://127.0.0.1:5434 (call header penstock-subscription: shop)",
    ]
    assert SqlPorts().lines("shop", None) == []


def test_the_settings_of_the_engine() -> None:
    assert SqlPorts(5433, 5434).environment == {"PENSTOCK_SQL_PORT": "5433", "PENSTOCK_FLIGHT_PORT": "5434"}
    assert SqlPorts().environment == {}


def test_a_port_in_use_names_its_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for ports, option in ((SqlPorts(postgres=port), "--sql-port"), (SqlPorts(flight=port), "--flight-port")):
            trouble = ports.trouble({})
            assert trouble is not None
            assert trouble.startswith(f"127.0.0.1:{port} cannot be listened on (")
            assert trouble.endswith(f"choose another {option}")
        assert SqlPorts(postgres=port).trouble({"PENSTOCK_SQL_HOST": "127.0.0.2"}) is None
    assert SqlPorts(port, port).trouble({}) is None
