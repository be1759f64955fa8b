"""Which scenarios are played on which kind of target with every test run."""

from __future__ import annotations

import pytest

from tests.pg.schema_changes.golden import golden_names

_OF_A_SORT = 2
"""So many scenarios whose names begin with the same word are played on PostgreSQL, too."""
_BY_KIND = frozenset({"rename_case_twins"})
"""What is expected of them differs by the kind of target."""
_ON_POSTGRES = ("postgres", True, False)
"""The way that they are played: stepwise, without captured DDL."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other scenarios on PostgreSQL to `make chaos`."""
    few = _few()
    for item in items:
        chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if chosen.get("played") == _ON_POSTGRES and "name" in chosen and chosen["name"] not in few:
            item.add_marker(pytest.mark.chaos)


def _few() -> frozenset[str]:
    sorts: dict[str, list[str]] = {}
    for name in golden_names():
        sorts.setdefault(name.partition("_")[0], []).append(name)
    return _BY_KIND.union(*(names[:_OF_A_SORT] for names in sorts.values()))
