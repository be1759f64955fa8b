"""A source is opened by its kind of connection and its kind of capture."""

from __future__ import annotations

from typing import Any, cast

import pytest

from engine import connectors
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

    monkeypatch.setitem(connectors.SOURCES, ("paper", "ledger"), opener("ledger"))
    monkeypatch.setitem(connectors.SOURCES, ("paper", "diff"), opener("diff"))
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
