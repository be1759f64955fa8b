"""Clients of Arrow Flight SQL: pyarrow.flight and ADBC."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pytest
from pyarrow import flight

from engine.sql_endpoint.flight.commands import tickets_of
from engine.sql_endpoint.flight.metadata import KEYS_SQL
from engine.sql_endpoint.flight.protobuf import Fields, encoded, packed_any, unpacked_any
from tests.contract.test_duckdb_query_fences import ATTACKS
from tests.fixtures import sql_clients
from tests.fixtures.channel import ADMIN
from tests.fixtures.postgres import Database
from tests.fixtures.service import SUBSCRIPTION
from tests.pg.sql_endpoint.conftest import USER, Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

_SQL = "arrow.flight.protocol.sql."
_WAIT_S = 60


class Client:
    """A client without a driver. `headers` replace those of a well-behaved one."""

    def __init__(self, endpoint: Endpoint, token: str = ADMIN, **headers: str) -> None:
        self.flight = flight.FlightClient(f"grpc://127.0.0.1:{endpoint.flight_port}")
        given = {"authorization": f"Bearer {token}", "penstock-subscription": SUBSCRIPTION}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers = [(name.encode(), value.encode()) for name, value in given.items() if value]
        self.options = flight.FlightCallOptions(headers=self.headers)

    def info(self, command: str | bytes) -> Any:
        return self.flight.get_flight_info(flight.FlightDescriptor.for_command(command), self.options)

    def rows(self, info: Any) -> Any:
        return self.flight.do_get(info.endpoints[0].ticket, self.options).read_all()

    def read(self, command: str | bytes) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.rows(self.info(command)).to_pylist()
        return rows

    def command(self, name: str, fields: dict[int, int | bytes]) -> list[dict[str, Any]]:
        return self.read(packed_any(_SQL + name, encoded(fields)))

    def act(self, name: str, body: bytes) -> list[bytes]:
        return [result.body.to_pybytes() for result in self.flight.do_action(flight.Action(name, body), self.options)]

    def prepare(self, sql: str) -> Fields:
        """ActionCreatePreparedStatementResult."""
        body = packed_any(_SQL + "ActionCreatePreparedStatementRequest", encoded({1: sql.encode()}))
        return Fields(unpacked_any(self.act("CreatePreparedStatement", body)[0])[1])


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[Client]:
    made = Client(endpoint)
    yield made
    made.flight.close()


@pytest.fixture
def viewer(endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """Id and text of another token."""
    with endpoint.service.server.client() as api:
        made = api.post("/tokens", json={"name": "flight-viewer", "role": "viewer"}).json()
        yield made["id"], made["token"]
        api.delete(f"/tokens/{made['id']}")


def test_rows_come_with_their_position(endpoint: Endpoint, database: Database) -> None:
    with database.connect() as writer:
        writer.execute("INSERT INTO orders VALUES (7001, 'flight', 12.50)")
    client = Client(endpoint, penstock_freshness="latest")
    info = client.info("SELECT id, customer, total FROM orders WHERE id = 7001")
    assert info.schema.names == ["id", "customer", "total"]
    said = json.loads(info.app_metadata)
    assert (said["answered_by"], said["stale"], said["left_out"]) == ("target", None, [])
    assert said["position"] >= said["receipt"]["position"]
    rows = client.rows(info)
    assert rows.schema == info.schema
    assert [tuple(map(str, row.values())) for row in rows.to_pylist()] == [("7001", "flight", "12.50")]


def test_many_rows_come_whole(client: Client) -> None:
    rows = client.rows(client.info("SELECT i, 'row ' || i AS word FROM range(300000) r(i)"))
    assert rows.column("i").to_pylist() == list(range(300_000))
    assert rows.column("word")[299_999].as_py() == "row 299999"


def test_no_rows_have_columns_too(client: Client) -> None:
    rows = client.rows(client.info("SELECT id FROM orders WHERE id < 0"))
    assert (rows.num_rows, rows.schema.names) == (0, ["id"])


def test_columns_with_a_dictionary(client: Client) -> None:
    assert client.read("SELECT CAST(w AS ENUM('a', 'b')) AS e FROM (VALUES ('b'), (NULL)) v(w)") == [
        {"e": "b"},
        {"e": None},
    ]


def test_a_ticket_is_used_once_and_by_its_token_only(
    client: Client, endpoint: Endpoint, viewer: tuple[str, str]
) -> None:
    info = client.info("SELECT 1 AS x")
    other = Client(endpoint, viewer[1])
    assert other.read("SELECT 2 AS x") == [{"x": 2}]
    with pytest.raises(flight.FlightServerError, match="not_found"):
        other.rows(info)
    assert client.rows(info).to_pylist() == [{"x": 1}]
    with pytest.raises(flight.FlightServerError, match="not_found"):
        client.rows(info)


def test_a_missed_deadline_says_how_far_it_is(endpoint: Endpoint) -> None:
    client = Client(endpoint, penstock_freshness="FFFF/0", penstock_timeout_ms="50")
    with pytest.raises(flight.FlightTimedOutError, match=r"freshness_timeout: .*applied=") as missed:
        client.info("SELECT 1 FROM orders")
    problem = json.loads(missed.value.extra_info)
    assert (problem["code"], problem["position"]) == ("freshness_timeout", "FFFF/0")
    assert problem["applied"]


def test_rows_that_are_late_say_so(endpoint: Endpoint) -> None:
    headers = {"penstock_freshness": "FFFF/0", "penstock_timeout_ms": "50", "penstock_on_timeout": "stale"}
    info = Client(endpoint, **headers).info("SELECT count(*) AS n FROM lines")
    stale = json.loads(info.app_metadata)["stale"]
    assert stale["wanted"] == "FFFF/0"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"penstock_freshness": "never"}, "position"),
        ({"penstock_freshness": "latest", "penstock_timeout_ms": "soon"}, "not a duration"),
        ({"penstock_on_timeout": "guess"}, "error or stale or source"),
        ({"penstock_on_unavailable": "guess"}, "error or include or source"),
        ({"penstock_subscription": ""}, "penstock-subscription"),
        ({"penstock_subscription": "nowhere"}, "not_found"),
    ],
)
def test_wrong_headers_are_errors(endpoint: Endpoint, headers: dict[str, str], message: str) -> None:
    with pytest.raises(flight.FlightServerError, match=message):
        Client(endpoint, **headers).info("SELECT 1")


@pytest.mark.parametrize("header", ["database", "catalog"])
def test_other_names_of_the_subscription(endpoint: Endpoint, header: str) -> None:
    assert Client(endpoint, penstock_subscription="", **{header: SUBSCRIPTION}).read("SELECT 1 AS x") == [{"x": 1}]


@pytest.mark.parametrize("command", [b"", b"\xff\xfe", packed_any(_SQL + "CommandStatementQuery", b"\x0a\x09")])
def test_malformed_commands_are_errors(client: Client, command: bytes) -> None:
    with pytest.raises(flight.FlightServerError, match="invalid_request"):
        client.info(command)
    with pytest.raises(flight.FlightServerError, match="invalid_request"):
        client.flight.do_get(flight.Ticket(command), client.options)
    with pytest.raises(flight.FlightServerError, match="invalid_request"):
        client.act("CreatePreparedStatement", command)


def test_errors_of_statements_name_the_problem_and_no_code_of_ours(client: Client) -> None:
    with pytest.raises(flight.FlightServerError, match="query_invalid") as error:
        client.info("SELECT nothing FROM orders")
    assert "Traceback" not in str(error.value)
    assert json.loads(error.value.extra_info)["code"] == "query_invalid"


def test_hostile_statements_change_nothing(client: Client) -> None:
    before = client.read("SELECT count(*) AS n, sum(id) AS s FROM orders")
    for number, sql in enumerate(ATTACKS[::3]):
        text = sql.format(folder="/nowhere")
        with pytest.raises(flight.FlightError):
            client.read(text)
        if number % 4 == 0 and "$1" not in text and "?" not in text:
            with pytest.raises(flight.FlightError):
                client.prepare(text)
    assert client.read("SELECT count(*) AS n, sum(id) AS s FROM orders") == before


@pytest.mark.parametrize(
    "command", ["CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest"]
)
def test_updates_are_refused(client: Client, command: str) -> None:
    message = packed_any(_SQL + command, encoded({1: b"DELETE FROM orders"}))
    writer, _ = client.flight.do_put(flight.FlightDescriptor.for_command(message), pa.schema([]), client.options)
    with pytest.raises(flight.FlightUnauthorizedError, match="read-only"):
        writer.close()
    with pytest.raises(flight.FlightUnauthorizedError, match="read-only"):
        client.info(message)


def test_metadata(client: Client) -> None:
    assert len(client.command("CommandGetCatalogs", {})) == 1
    schemas = [row["db_schema_name"] for row in client.command("CommandGetDbSchemas", {})]
    assert "public" in schemas
    tables = client.command("CommandGetTables", {2: b"public", 3: b"o%", 5: 1})
    assert [(row["table_name"], row["table_type"]) for row in tables] == [("orders", "TABLE")]
    described = pa.ipc.read_schema(pa.py_buffer(tables[0]["table_schema"]))
    assert described.equals(client.info("SELECT * FROM orders").schema)
    assert client.command("CommandGetTableTypes", {}) == [{"table_type": "TABLE"}]
    assert client.command("CommandGetSqlInfo", {1: 3}) == [{"info_name": 3, "value": True}]
    with pytest.raises(flight.FlightServerError, match="not_supported_yet"):
        client.command("CommandGetXdbcTypeInfo", {})


def test_primary_keys(client: Client, database: Database) -> None:
    found = client.command("CommandGetPrimaryKeys", {3: b"lines"})
    (catalog,) = client.command("CommandGetCatalogs", {})
    assert [tuple(row.values()) for row in found] == [
        (catalog["catalog_name"], "public", "lines", "order_id", "lines_pkey", 1),
        (catalog["catalog_name"], "public", "lines", "n", "lines_pkey", 2),
    ]
    assert client.command("CommandGetPrimaryKeys", {2: b"other", 3: b"lines"}) == []
    assert client.command("CommandGetImportedKeys", {3: b"lines"}) == []
    # On a PostgreSQL target, it is PostgreSQL that answers.
    keys = [row for row in database.execute(KEYS_SQL) if row[1] == "lines"]
    assert keys == [tuple(row.values())[1:] for row in found]


def test_the_columns_of_a_statement_without_executing_it(client: Client) -> None:
    found = client.flight.get_schema(flight.FlightDescriptor.for_command("SELECT id FROM orders"), client.options)
    assert found.schema.names == ["id"]


def test_a_prepared_statement(client: Client, endpoint: Endpoint, viewer: tuple[str, str]) -> None:
    made = client.prepare("SELECT id, customer FROM orders WHERE id = $1")
    assert pa.ipc.read_schema(pa.py_buffer(made.raw(2))).names == ["id", "customer"]
    assert pa.ipc.read_schema(pa.py_buffer(made.raw(3))).names == ["$1"]
    query = packed_any(_SQL + "CommandPreparedStatementQuery", encoded({1: made.raw(1)}))
    with pytest.raises(flight.FlightServerError, match="no parameters are bound"):
        client.info(query)
    for value in (3, 4):
        row = pa.record_batch({"1": pa.array([value])})
        _bind(client, query, row)
        assert client.read(query) == [{"id": value, "customer": f"customer {value}"}]
    with pytest.raises(flight.FlightServerError, match="more than one row"):
        _bind(client, query, pa.record_batch({"1": pa.array([1, 2])}))
    with pytest.raises(flight.FlightServerError, match="not_found"):
        Client(endpoint, viewer[1]).info(query)
    client.act(
        "ClosePreparedStatement", packed_any(_SQL + "ActionClosePreparedStatementRequest", encoded({1: made.raw(1)}))
    )
    with pytest.raises(flight.FlightServerError, match="not_found"):
        client.info(query)


def _bind(client: Client, query: bytes, row: Any) -> None:
    writer, reader = client.flight.do_put(flight.FlightDescriptor.for_command(query), row.schema, client.options)
    writer.write_batch(row)
    writer.done_writing()
    reader.read()
    writer.close()


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_statement_is_cancelled(client: Client, action: str) -> None:
    info = client.info("SELECT 1 AS x")
    body = encoded({1: info.serialize()})
    if action == "CancelQuery":
        body = packed_any(_SQL + "ActionCancelQueryRequest", body)
    assert tickets_of(info.serialize()) == [info.endpoints[0].ticket.ticket]
    for status in (1, 3):  # cancelled, then no more
        (result,) = client.act(action, body)
        if action == "CancelQuery":
            result = unpacked_any(result)[1]
        assert Fields(result).integers(1) == [status]
    with pytest.raises(flight.FlightServerError, match="not_found"):
        client.rows(info)


_LONG = "SELECT sum(a.i * b.i % 7) FROM range(1000000) a(i), range(1000000) b(i)"


def test_a_client_that_leaves_ends_its_statement(endpoint: Endpoint) -> None:
    """More often than the engine has places for statements, so that each place came free again."""
    client = Client(endpoint)
    hurried = flight.FlightCallOptions(timeout=0.5, headers=client.headers)
    for _ in range(6):
        with pytest.raises(flight.FlightTimedOutError):
            client.flight.get_flight_info(flight.FlightDescriptor.for_command(_LONG), hurried)
    assert client.read("SELECT 1 AS x") == [{"x": 1}]


def test_clients_that_leave_amid_the_rows_end_their_statement(endpoint: Endpoint) -> None:
    for _ in range(6):
        client = Client(endpoint)
        info = client.info("SELECT i, repeat('x', 100) AS word FROM range(100000000) r(i)")
        reader = client.flight.do_get(info.endpoints[0].ticket, client.options)
        assert reader.read_chunk().data.num_rows
        reader.cancel()
        client.flight.close()
    assert Client(endpoint).read("SELECT 1 AS x") == [{"x": 1}]


def test_without_a_valid_token_there_is_nothing(endpoint: Endpoint) -> None:
    for authorization in ("", "Bearer wrong", "Bearer " + ADMIN + "x", "Basic !!", _basic("other", ADMIN)):
        client = Client(endpoint, authorization=authorization)
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.info("SELECT 1")
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.prepare("SELECT 1")
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.flight.do_get(flight.Ticket(b"x"), client.options).read_all()
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.flight.list_actions(client.options))


def _basic(user: str, token: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()


def test_logins_by_name_and_token(endpoint: Endpoint) -> None:
    assert Client(endpoint, authorization=_basic(USER, ADMIN)).read("SELECT 1 AS x") == [{"x": 1}]
    client = Client(endpoint)
    name, value = client.flight.authenticate_basic_token(USER, ADMIN)
    assert (name, value) == (b"authorization", f"Bearer {ADMIN}".encode())
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.flight.authenticate_basic_token(USER, "wrong")


def test_what_does_not_speak_the_protocol_disturbs_no_client(endpoint: Endpoint, client: Client) -> None:
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100):
        with socket.create_connection(("127.0.0.1", endpoint.flight_port), timeout=_WAIT_S) as broken:
            broken.sendall(sent)
    assert client.read("SELECT 1 AS x") == [{"x": 1}]


def test_many_clients_at_once(endpoint: Endpoint) -> None:
    found: list[Any] = []

    def read(number: int) -> None:
        found.append(Client(endpoint).read(f"SELECT {number} AS x, count(*) AS n FROM lines"))

    threads = [threading.Thread(target=read, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_WAIT_S)
    assert sorted(rows[0]["x"] for rows in found) == list(range(12))


@pytest.fixture
def adbc(endpoint: Endpoint) -> Iterator[Any]:
    with sql_clients.adbc(endpoint) as connection:
        yield connection


def test_adbc_reads_its_own_writes_with_parameters(adbc: Any, database: Database) -> None:
    with database.connect() as writer, adbc.cursor() as cursor:
        for number in range(7100, 7103):
            writer.execute("INSERT INTO orders VALUES (%s, 'adbc', 2.25)", [number])
            cursor.execute("SELECT id, total FROM orders WHERE id = $1", (number,))
            assert [tuple(map(str, row)) for row in cursor.fetchall()] == [(str(number), "2.25")]


def test_adbc_metadata(adbc: Any) -> None:
    assert adbc.adbc_get_info()["vendor_name"] == "Penstock"
    assert adbc.adbc_get_table_types() == ["TABLE"]
    assert adbc.adbc_get_table_schema("orders", db_schema_filter="public").names[:2] == ["id", "customer"]
    objects = adbc.adbc_get_objects(depth="all", db_schema_filter="public").read_all().to_pylist()
    tables = objects[0]["catalog_db_schemas"][0]["db_schema_tables"]
    columns = {table["table_name"]: [column["column_name"] for column in table["table_columns"]] for table in tables}
    assert columns["lines"] == ["order_id", "n", "sku"]


def test_adbc_errors(adbc: Any, endpoint: Endpoint) -> None:
    with adbc.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error, match="query_invalid"):
            cursor.execute("SELECT nothing FROM orders")
        with pytest.raises(adbc_driver_manager.Error, match="query_not_a_read"):
            cursor.execute("DELETE FROM orders")
        cursor.execute("SELECT count(*) FROM lines")
        assert cursor.fetchone() == (100,)
    with (
        pytest.raises(adbc_driver_manager.Error, match=r"(?i)unauthenticated"),
        sql_clients.adbc(endpoint, username=USER, password="no") as wrong,
    ):
        wrong.cursor().execute("SELECT 1")
