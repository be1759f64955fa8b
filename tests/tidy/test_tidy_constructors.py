"""A class is constructed from few things: at most six parameters, of which at most two are functions to call back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.tidy.source_tree import Module, modules

OURS = modules("engine", "server")
PARAMETERS, CALLABLES = 6, 2


class Constructor(NamedTuple):
    """A hand-written `__init__`; `self` is not counted."""

    name: str
    parameters: int
    callables: int


def test_constructors_take_few_things() -> None:
    aliases = _callable_aliases(OURS)
    found = {
        f"{module.path} {one.name}"
        for module in OURS
        for one in constructors(module.tree, aliases)
        if one.parameters > PARAMETERS or one.callables > CALLABLES
    }
    assert not found, "take an object or a dataclass instead of so many parameters, return values or events"


def test_the_rule_counts_every_kind_of_parameter_and_callables_by_another_name() -> None:
    tree = ast.parse(
        "Tell = Callable[[str], None]\n"
        "class One:\n"
        "    def __init__(self, a, /, b: int, *c, d: Tell, e: Callable[[], int] | None = None, **f): ...\n"
        "class Two:\n"
        "    def __init__(self): ...\n"
    )
    found = list(constructors(tree, _callable_aliases([Module("x.py", "", tree)])))
    assert found == [Constructor("One", 6, 2), Constructor("Two", 0, 0)]


def constructors(tree: ast.AST, callables: set[str]) -> Iterator[Constructor]:
    """The constructors in a file; `callables`: names of the types of functions."""
    for node in ast.walk(tree):
        for one in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                given = one.args
                starred = [each for each in (given.vararg, given.kwarg) if each is not None]
                taken = [*given.posonlyargs, *given.args, *given.kwonlyargs, *starred][1:]
                called = [each for each in taken if each.annotation is not None and callables & _names(each.annotation)]
                yield Constructor(node.name, len(taken), len(called))


def _callable_aliases(found: list[Module] | tuple[Module, ...]) -> set[str]:
    """`Callable`, and every name that a module gives to a type of function."""
    return {"Callable"} | {
        target.id
        for module in found
        for node in module.tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and "Callable" in _names(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _names(annotation: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
