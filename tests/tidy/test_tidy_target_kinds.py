"""A new kind of target is small: of each frame for SQL databases it implements at most ten methods."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

import pytest

from engine.model.target import Target
from engine.targets.metadata_store import MetadataStore
from engine.targets.shared import SqlViews
from engine.targets.sql_tables import SqlTables
from engine.targets.sql_target import SqlTarget
from tests.tidy.source_tree import ROOT

BROUGHT = {SqlTarget: 9, SqlTables: 10, SqlViews: 5, MetadataStore: 1}
"""By frame: the number of methods that a kind of target brings."""


@pytest.mark.parametrize("frame", BROUGHT, ids=lambda frame: frame.__name__)
def test_a_kind_of_target_brings_few_methods(frame: type) -> None:
    assert len(brought(frame)) == BROUGHT[frame] <= 10


def test_the_protocol_and_the_worked_example_name_what_is_brought() -> None:
    words = re.sub(r"\s+", " ", Target.__doc__ or "")
    _, *parts = re.split(r"brings seven|gives fourteen|The nine", words)
    kind, frame, without = (set(re.findall(r"`([a-z]\w*)`", part)) for part in parts)
    methods = {name for name, each in vars(Target).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert kind == methods & brought(SqlTarget)
    assert frame == {name for name in methods if name in vars(SqlTarget)}
    assert without == {name for name in methods if not _is_empty(Target, name)}
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"two values and {sum(BROUGHT.values())} methods" in page


def test_a_method_without_a_body_is_found() -> None:
    assert _is_empty(Target, "close")
    assert _is_empty(Target, "commit")
    assert not _is_empty(Target, "tuning")


def brought(frame: type) -> set[str]:
    """The frame's abstract methods, and those of a protocol among its bases that have no body and that it does not give."""
    open_ = set(getattr(frame, "__abstractmethods__", ()))
    for name, method in vars(Target).items() if Target in frame.__mro__ else ():
        if inspect.isfunction(method) and not name.startswith("_") and getattr(frame, name) is method:
            open_ |= {name} if _is_empty(Target, name) else set()
    return open_


def _is_empty(owner: type, name: str) -> bool:
    node = ast.parse(textwrap.dedent(inspect.getsource(vars(owner)[name]))).body[0]
    assert isinstance(node, ast.FunctionDef)
    last = node.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...
