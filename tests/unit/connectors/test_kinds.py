"""A source is opened by its kind of connection and its kind of capture."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pkgutil import resolve_name
from typing import Any, cast

import pytest

from engine import connectors
from engine.kinds import Imported, SourceKind, TargetKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.source import Source
from engine.model.subscription import CaptureSpec, ConnectionSpec


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was opened; `paper` can be captured in two ways."""
    seen: list[tuple[str, str]] = []

    def opener(capture: str) -> Any:
        def open_it(connection: ConnectionSpec) -> Source:
            seen.append((connection.kind, capture))
            return cast("Source", object())

        return open_it

    usual = connectors.SOURCES["postgres", "postgres_log"]
    for capture in ("ledger", "diff"):
        kind = replace(usual, open_source=opener(capture))
        monkeypatch.setitem(connectors.SOURCES, ("paper", capture), kind)
    return seen


@pytest.mark.parametrize(
    ("capture", "expected"), [(None, "ledger"), (CaptureSpec("ledger"), "ledger"), (CaptureSpec("diff"), "diff")]
)
def test_the_capture_chooses_among_those_of_the_kind(
    opened: list[tuple[str, str]], capture: CaptureSpec | None, expected: str
) -> None:
    connectors.open_source(ConnectionSpec("books", "paper", {}, capture=capture))
    assert opened == [("paper", expected)]


def test_a_kind_that_does_not_exist_is_named() -> None:
    with pytest.raises(EngineFault, match="no source of kind 'stone' exists") as caught:
        connectors.open_source(ConnectionSpec("books", "stone", {}))
    assert (caught.value.kind, caught.value.subject) == (FaultKind.SOURCE_UNREACHABLE, "books")


def test_a_capture_that_the_kind_does_not_have_names_those_that_it_has(opened: list[tuple[str, str]]) -> None:
    with pytest.raises(EngineFault, match="'paper' cannot be captured by 'postgres_log': ledger, diff"):
        connectors.open_source(ConnectionSpec("books", "paper", {}, capture=CaptureSpec("postgres_log")))
    assert not opened


def test_the_declarations_of_the_kinds_import_no_driver_and_no_kernel() -> None:
    """The server reads them; drivers and compiled kernels would cost it memory and a second at its start."""
    code = "import sys, engine.connectors; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert "pydantic" in loaded
    assert not {"duckdb", "psycopg", "numba", "pyarrow", "pyspark", "adbc_driver_postgresql"} & set(loaded)


@pytest.mark.parametrize("kind", [*connectors.SOURCES.values(), *connectors.TARGETS.values()])
def test_what_a_kind_imports_exists(kind: SourceKind | TargetKind) -> None:
    for value in (getattr(kind, field.name) for field in fields(kind)):
        if isinstance(value, Imported):
            assert callable(resolve_name(value.reference))


def test_a_forked_process_finds_the_code_of_every_kind_imported() -> None:
    """Each would import it by itself otherwise: a quarter of a second of CPU for a log reader."""
    code = (
        "import sys; from importlib import import_module; from engine import connectors\n"
        "for name in connectors.PRELOADED: import_module(name)\n"
        "before = set(sys.modules)\n"
        "for kind in (*connectors.SOURCES.values(), *connectors.TARGETS.values()):\n"
        "    resolve_name = __import__('pkgutil').resolve_name\n"
        "    [resolve_name(value.reference) for value in (getattr(kind, name) for name in kind.__slots__) if hasattr(value, 'reference')]\n"
        "print(*(set(sys.modules) - before))"
    )
    late = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert late == []
