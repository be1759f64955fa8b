"""What PostgreSQL prints, DuckDB holds: for every type, by the copy and by the log. The database is the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import TableSchema
from engine.model.values import value_type
from server.demo.embedded import EmbeddedPostgres
from tests.contract.roundtrip_bench import Loaded, Printed, RoundTrip
from tests.contract.value_cases import CASES, EXTENSION_CASES, EXTENSIONS, OUT_OF_DOMAIN, SCHEMA, Case
from tests.contract.value_render import same
from tests.fixtures.postgres import Database, drop_database

_numbers = itertools.count()


@contextmanager
def round_trip(cluster: EmbeddedPostgres, folder: Path, setup: str) -> Iterator[RoundTrip]:
    database = Database(cluster, "value_roundtrip")
    cluster.execute("CREATE DATABASE value_roundtrip TEMPLATE template0 ENCODING 'UTF8'")
    trip = RoundTrip(database, folder)
    trip.source.execute(setup)
    yield trip
    trip.close()
    drop_database(database)


@pytest.fixture(scope="module")
def bench(pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundTrip]:
    with round_trip(pg18, tmp_path_factory.mktemp("roundtrip"), SCHEMA) as trip:
        yield trip


@pytest.fixture(scope="module")
def bench15(pg15: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundTrip]:
    with round_trip(pg15, tmp_path_factory.mktemp("roundtrip15"), EXTENSIONS) as trip:
        yield trip


def differences(schema: TableSchema, printed: Sequence[Printed], held: Sequence[Any]) -> list[tuple[Printed, Any]]:
    value = value_type(schema.column("v"))
    assert len(printed) == len(held)
    if value.element is None:
        return [pair for pair in zip(printed, held, strict=True) if not same(value, pair[0], pair[1])]  # type: ignore[arg-type]
    different = []
    for left, right in zip(printed, held, strict=True):
        if left is None or right is None:
            equal = left is right
        else:
            equal = len(left) == len(right) and all(same(value.element, x, y) for x, y in zip(left, right, strict=True))
        if not equal:
            different.append((left, right))
    return different


def check(schema: TableSchema, loaded: Loaded, count: int) -> None:
    assert len(loaded.printed) == count
    assert differences(schema, loaded.printed, loaded.copied) == []
    assert differences(schema, loaded.printed, loaded.logged) == []


pytestmark = pytest.mark.pg


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_edge_values_arrive_exact(bench: RoundTrip, case: Case) -> None:
    edges(bench, case)


@pytest.mark.parametrize("case", [case for case in CASES if case.values is not None], ids=lambda case: case.id)
def test_generated_values_arrive_exact(bench: RoundTrip, case: Case) -> None:
    generated(bench, case)


@pytest.mark.pg15
@pytest.mark.parametrize("case", EXTENSION_CASES, ids=lambda case: case.id)
def test_values_of_types_nobody_knows_arrive_exact(bench15: RoundTrip, case: Case) -> None:
    edges(bench15, case)
    if case.values is not None:
        generated(bench15, case)


def edges(bench: RoundTrip, case: Case) -> None:
    schema = bench.table(case, next(_numbers))
    nulls: tuple[str | None, ...] = () if case.type == "label" else (None,)
    values = (*case.edges, *nulls)
    check(schema, bench.load(schema, values), len(values))


def generated(bench: RoundTrip, case: Case) -> None:
    assert case.values is not None
    drawn: list[str] = []

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(case.values, min_size=30, max_size=120))
    def run(values: list[str]) -> None:
        drawn.extend(values)

    run()
    # At once, since loading takes far longer than comparing; a failure lists the values that differ.
    schema = bench.table(case, next(_numbers))
    check(schema, bench.load(schema, drawn), len(drawn))


@pytest.mark.parametrize(("type_name", "value"), OUT_OF_DOMAIN)
def test_a_value_out_of_domain_is_a_fault_on_both_ways_and_exact_as_text(
    bench: RoundTrip, type_name: str, value: str
) -> None:
    schema = bench.table(Case(type_name, ()), next(_numbers))
    bench._records()
    bench.insert(schema, [None, value])
    for decode in (bench.decode_copy, bench.decode_log):
        with pytest.raises(EngineFault) as raised:
            decode(schema)
        assert raised.value.kind is FaultKind.VALUE_OUT_OF_DOMAIN
        assert value not in raised.value.detail
    remedied = bench.table(Case(type_name, (), map_as="text"), next(_numbers))
    check(remedied, bench.load(remedied, [None, value]), 2)
