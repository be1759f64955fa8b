"""The project's own Python files, parsed."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its path below the root with forward slashes, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


@functools.cache
def modules(*folders: str) -> tuple[Module, ...]:
    """All Python files below these folders of the project."""
    return tuple(_parsed(file) for folder in folders for file in sorted((ROOT / folder).rglob("*.py")))


@functools.cache
def _parsed(file: Path) -> Module:
    text = file.read_text(encoding="utf-8")
    return Module(file.relative_to(ROOT).as_posix(), text, ast.parse(text))


@functools.cache
def functions(module: Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    """Every function and method, nested ones too."""
    return tuple(node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def docstrings(module: Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is a statement: docstrings, and those below a constant."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def comments(module: Module) -> Iterator[tuple[int, str]]:
    """Line and text of every comment."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def texts(module: Module, field: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string with a blank that is not a docstring; what a string formats is `field` in it."""
    inner = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            inner.update(id(part) for part in node.values)
            text = "".join(part.value if isinstance(part, ast.Constant) else field for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text:
            yield node.lineno, text


def calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted name and line of every call, as written: `datetime.now`, `time.sleep`, `open`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield _dotted(node.func), node.lineno


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(module: Module) -> set[str]:
    """First part of the name of everything imported absolutely, at any depth of the file."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names
