"""Numbers that follow from names: the same in every process and version, and a collision is an error."""

from __future__ import annotations

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.query_diff.derived_numbers import check_distinct, column_base, relation_of


def test_numbers_never_change() -> None:
    """They are in queues and on targets."""
    assert relation_of(TableName("main", "orders")) == 1985238025
    assert column_base("structure") == 1303732224


def test_numbers_fit_and_names_are_whole() -> None:
    names = [TableName("a", f"t{n}") for n in range(500)] + [TableName("a.t", "1"), TableName("a", "t.1")]
    numbers = {relation_of(name) for name in names}
    assert len(numbers) == len(names)
    assert all(0 < number < 1 << 31 for number in numbers)
    bases = {column_base(str(n)) for n in range(500)}
    assert all(0 <= base <= (1 << 31) - 4096 and base % 4096 == 0 for base in bases)
    check_distinct(names)


def test_a_collision_is_found() -> None:
    seen: dict[int, TableName] = {}
    for n in range(1_000_000):
        name = TableName("main", f"t{n}")
        other = seen.setdefault(relation_of(name), name)
        if other != name:
            break
    with pytest.raises(EngineFault) as found:
        check_distinct([name, TableName("main", "orders"), other])
    assert found.value.kind is FaultKind.TABLE_NAME_COLLISION
    check_distinct([name, name])
