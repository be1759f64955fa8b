"""Rules for tests: each asserts something, none sleeps, file names are unique."""

from __future__ import annotations

import ast
from collections import Counter

from tests.tidy.source_tree import Module, calls, functions, modules

TESTS = tuple(m for m in modules("tests") if m.path.rpartition("/")[2].startswith("test_"))
ASSERTING = ("assert", "check", "expect", "raises", "warns", "fail")


def _asserts(node: ast.AST, module: Module, seen: frozenset[str] = frozenset()) -> bool:
    """Whether the body asserts, by itself or through a function of this module or one whose name says so."""
    local = {f.name: f for f in functions(module)}
    if any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
        return True
    for name, _ in calls(node):
        last = name.rpartition(".")[2]
        if last.lstrip("_").startswith(ASSERTING):
            return True
        if last in local and last not in seen and _asserts(local[last], module, seen | {last}):
            return True
    return False


def test_every_test_asserts_something() -> None:
    empty = [
        f"{module.path}:{function.lineno} {function.name}"
        for module in TESTS
        for function in functions(module)
        if function.name.startswith("test_") and not _asserts(function, module)
    ]
    assert not empty


def test_a_test_without_assertion_is_found() -> None:
    text = "def test_x():\n    run()\n\ndef run():\n    pass\n"
    module = Module("x.py", text, ast.parse(text))
    assert not _asserts(module.tree.body[0], module)


def test_no_test_sleeps() -> None:
    bad = [
        f"{module.path}:{line}"
        for module in modules("tests")
        if not module.path.startswith(("tests/chaos/", "tests/bench/"))
        for name, line in calls(module.tree)
        if name in {"time.sleep", "sleep", "asyncio.sleep"}
    ]
    assert not bad


def test_names_of_test_files_are_unique() -> None:
    names = Counter(module.path.rpartition("/")[2] for module in TESTS)
    assert not [name for name, count in names.items() if count > 1]
