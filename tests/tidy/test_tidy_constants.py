"""Each number of the engine names its measurement or reason, or the source of its format."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source_tree import Module, comments, modules

OURS = modules("engine")
NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")


def test_each_number_of_the_engine_has_a_reason() -> None:
    found = {f"{module.path} {name}" for module in OURS for name in unexplained(module)}
    assert not found, (
        "write below each what it bounds, in which unit, and why this value; or a comment above a group of one format"
    )


def test_the_rule_accepts_a_string_below_a_comment_and_a_commented_group() -> None:
    text = (
        "A = 1\n"
        "B: float = -2 * 10**3\n"
        '"""Why."""\n'
        "_C = 3  # why\n"
        "# Why.\n"
        "D = 4\n"
        "E = 5\n"
        "\n"
        "F, G = 6, 7\n"
        "H = len('')\n"
        "i = 8\n"
        "J = True\n"
        "K, L = 'k', 9\n"
        "M = N = 10\n"
        "# Why.\n"
        "import os\n"
        "O = 11\n"
    )
    assert list(unexplained(Module("x.py", text, ast.parse(text)))) == ["A", "F, G", "M, N", "O"]


def unexplained(module: Module) -> Iterator[str]:
    """The names of the module's numbers without a string below, a comment on their line, or one above their group."""
    commented = {line for line, _ in comments(module)}
    body, lines = module.tree.body, module.text.splitlines()
    grouped = -1
    """Last line of a group below a comment."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        above = node.lineno - 1
        if above == grouped or (above in commented and lines[above - 1].startswith("#")):
            grouped = node.end_lineno or node.lineno
        explained = node.lineno <= grouped or commented.intersection(range(node.lineno, (node.end_lineno or 0) + 1))
        names = _numbers(node)
        if names and not explained and not _is_text(following):
            yield ", ".join(names)


def _numbers(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """The names of constants to which the statement assigns numbers only."""
    if node.value is None or not _is_number(node.value):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [
        each.id
        for target in targets
        for each in ast.walk(target)
        if isinstance(each, ast.Name) and NAME.fullmatch(each.id)
    ]


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return type(value.value) in {int, float}
    if isinstance(value, ast.Tuple):
        return all(map(_is_number, value.elts))
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    return isinstance(value, ast.BinOp) and _is_number(value.left) and _is_number(value.right)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
