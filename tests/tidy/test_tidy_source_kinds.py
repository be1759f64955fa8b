"""Words of one kind of source stay in its folder: elsewhere there is a reader, the tables that the source sends, and a retained log."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source_tree import Module, modules

WORDS = re.compile(r"slot|publication|pgoutput", re.IGNORECASE)
OF_PYTHON = {"slots", "__slots__"}
THEIR_PLACES = (
    "engine/sources/postgres_log/",
    "engine/sources/postgres_logs/",
    "engine/sources/postgres/",
    "engine/sources/postgres_triggers/terms.py",
    # Its own WAL, of which the file's users know.
    "engine/sources/duckdb_queries/",
    "engine/sources/sqlite/",
    "engine/sources/sqlite_queries/",
    "engine/sources/sqlite_triggers/",
    "engine/connectors.py",
    # What speaks to PostgreSQL as source and as target, and places within an answer of the wire.
    "engine/postgres/",
    "engine/targets/postgres/lanes/stream.py",
)
TERMS = re.compile(r"\b(slots?|publications?|timelines?|LSN|WAL|pgoutput)\b", re.IGNORECASE)
WITH_THEIR_TEXTS = {
    # Failpoints and names within a message are promises.
    *("engine/platform/failpoints.py", "engine/link/messages.py"),
    # Remedies of faults that only this kind of source raises, and the names of its things in settings.
    *("engine/platform/fault_policy.py", "engine/platform/settings.py"),
}
PUBLIC = {
    # Codes of faults, with their policies.
    *("SLOT_DROPPED", "SLOT_IN_USE", "SOURCE_NO_SLOTS", "PUBLICATION_CHANGED"),
    # Failpoints.
    *("SLOT_CREATED", "SLOT_DROP_NOTED"),
    # Fields of GuardPolicy and of the message `assign`.
    *("drop_slot", "drop_slot_share", "slot", "slot_budget_bytes"),
    # The column `publications` of the progress record.
    "_PUBLICATIONS",
    # Slots of Spark's tasks, which are something else.
    "_slots",
}
"""Names that are promises, or mean something else. The list may only become shorter."""
ONLY_IN = {
    "slot": "engine/link/messages.py",
    "slot_budget_bytes": "engine/link/messages.py",
    "_slots": "engine/spark/session.py",
}


def test_names_of_one_kind_of_source_stay_in_its_folder() -> None:
    bad = [
        f"{module.path}:{line} {name}"
        for module in modules("engine")
        if not module.path.startswith(THEIR_PLACES)
        for name, line in _identifiers(module)
        if WORDS.search(name) and name not in OF_PYTHON
        if name not in PUBLIC or ONLY_IN.get(name, module.path) != module.path
    ]
    assert not bad, f"say it in the words of every kind of source (reader, sent tables, retained log): {bad}"


def test_texts_for_users_are_in_the_terms_of_their_source() -> None:
    bad = [
        f"{module.path}:{line} {text!r}"
        for module in modules("engine")
        if not module.path.startswith((*THEIR_PLACES, "engine/targets/")) and module.path not in WITH_THEIR_TEXTS
        for text, line in _texts(module)
        if TERMS.search(text)
    ]
    assert not bad, f"take the words from Source.terms, and positions by its text(): {bad}"


def test_each_public_name_is_still_needed() -> None:
    used = {name for module in modules("engine") for name, _ in _identifiers(module)}
    assert used >= PUBLIC


def _texts(module: Module) -> Iterator[tuple[str, int]]:
    """Strings that are no docstrings, with their lines."""
    bodies = [body for node in ast.walk(module.tree) if isinstance(body := getattr(node, "body", None), list)]
    documents = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value, node.lineno


def _identifiers(module: Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)):
                yield name, node.lineno
            case ast.alias(name=name, asname=given):
                yield given or name, node.lineno
            case ast.ImportFrom(module=str(name)):
                yield name, node.lineno
            case _:
                pass
