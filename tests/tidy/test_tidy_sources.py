"""Rules of the code base that no other tool holds: sizes, names, clocks, machine paths."""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy.source_tree import ROOT, Module, calls, functions, modules

OURS = modules("engine", "server", "bench", "migrations", "deploy", "penstock")
TESTS = modules("tests")
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "core"}
CLOCKS = re.compile(r"(^|/)(clock|clocks)\.py$")
CLOCK_CALLS = {"datetime.now", "datetime.datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time"}
DRIVERS_WITHOUT_CODES = {"engine/targets/duckdb/errors.py", "engine/sources/query_diff/row_store.py"}
"""Places whose driver tells a full disk, and a file that another program has open, by words only."""
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home/[a-z]\w*|Users)/")


@pytest.mark.parametrize("module", OURS, ids=lambda module: module.path)
def test_module_is_within_its_budgets(module: Module) -> None:
    lines = module.text.count("\n")
    assert lines <= 700, f"{module.path} has {lines} lines"
    generated = module.path.startswith("migrations/versions/")
    long = [f"{f.name}: {span}" for f in functions(module) if not generated and (span := _span(f)) > 70]
    assert not long, f"functions over 70 lines in {module.path}: {long}"


def test_nearly_all_functions_are_short() -> None:
    spans = [_span(function) for module in OURS for function in functions(module)]
    over = sum(span > 40 for span in spans)
    assert over <= 0.05 * len(spans), f"{over} of {len(spans)} functions have more than 40 lines"


def test_every_module_says_what_it_is_for() -> None:
    silent = [m.path for m in (*OURS, *TESTS) if m.text.strip() and not ast.get_docstring(m.tree)]
    assert not silent


def test_names_say_something() -> None:
    bad = [m.path for m in (*OURS, *TESTS) if BANNED_NAMES & set(m.path.removesuffix(".py").split("/"))]
    assert not bad


def test_time_is_read_from_clock_modules_only() -> None:
    bad = [
        f"{module.path}:{line} {name}"
        for module in OURS
        if not CLOCKS.search(module.path)
        for name, line in calls(module.tree)
        if name in CLOCK_CALLS
    ]
    assert not bad


def test_no_path_of_one_machine() -> None:
    files = [
        *(ROOT / name for name in ("Makefile", "Dockerfile", "compose.yaml", "pyproject.toml", "requirements.lock")),
        *(ROOT / ".ci").iterdir(),
    ]
    texts = [(m.path, m.text) for m in (*OURS, *TESTS)] + [(f.name, f.read_text()) for f in files if f.is_file()]
    bad = [name for name, text in texts if MACHINE_PATHS.search(text)]
    assert not [name for name in bad if not name.startswith("tests/tidy/")]


def test_the_machine_path_rule_finds_one() -> None:
    assert MACHINE_PATHS.search('x = "/home/somebody/x"')
    assert not MACHINE_PATHS.search("see host:8470/root/x and ./work/here")


def test_no_driver_text_decides_an_error() -> None:
    """Errors are classified by class or code: no `in str(error)` on a caught exception."""
    pattern = re.compile(r"\bin str\((?:error|exc|exception|e|err)\)")
    assert {m.path for m in OURS if pattern.search(m.text)} <= DRIVERS_WITHOUT_CODES


def _span(function: object) -> int:
    return function.end_lineno - function.lineno + 1  # type: ignore[attr-defined]


def test_the_parts_of_a_source_are_small() -> None:
    """A kind of source implements the parts that it has, one at a time."""
    protocols = [
        node
        for module in modules("engine")
        if module.path == "engine/model/source.py"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases)
    ]
    assert len(protocols) > 10
    methods = {node.name: sum(isinstance(each, ast.FunctionDef) for each in node.body) for node in protocols}
    assert {name: count for name, count in methods.items() if count > 8} == {}
