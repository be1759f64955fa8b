"""Text of clients: cut into statements, without a parser of SQL. Pure.

Only what the endpoint itself executes is recognized; everything else is a query for the target, whose own parser decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*(?:\n|\Z))
  | (?P<comment>/\*)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z))
  | (?P<string>'(?:[^']|'')*(?:'|\Z))
  | (?P<quoted>"(?:[^"]|"")*(?:"|\Z))
  | (?P<dollar>\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$)
  | (?P<parameter>\$[0-9]{1,9})
  | (?P<word>[A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]*)
  | (?P<semicolon>;)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a statement. `kind`: space, comment, string, quoted, parameter, word, semicolon or other."""

    kind: str
    text: str


def tokens(sql: str) -> Iterator[Token]:
    """The tokens of the text; joined, they are the text."""
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        kind, end = (str(match.lastgroup), match.end()) if match else ("other", at + 1)
        if kind == "comment":
            end = _comment_end(sql, at)
        elif kind == "dollar":
            close = sql.find(sql[at:end], end)
            end = len(sql) if close < 0 else close + end - at
        kind = {"escaped": "string", "dollar": "string"}.get(kind, kind)
        yield Token(kind, sql[at:end])
        at = end


def _comment_end(sql: str, begin: int) -> int:
    """Comments nest, as in PostgreSQL."""
    depth, at = 0, begin
    while at < len(sql):
        if sql.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif sql.startswith("*/", at):
            depth, at = depth - 1, at + 2
            if depth == 0:
                return at
        else:
            at += 1
    return len(sql)


def split(sql: str) -> list[str]:
    """The statements of a text, without semicolons and without empty ones."""
    found: list[str] = []
    current: list[str] = []
    for token in [*tokens(sql), Token("semicolon", ";")]:
        if token.kind != "semicolon":
            current.append(token.text)
            continue
        statement = "".join(current).strip()
        if any(token.kind not in {"space", "comment"} for token in tokens(statement)):
            found.append(statement)
        current = []
    return found


def parameter_count(sql: str) -> int:
    """The highest number of a parameter."""
    return max((int(token.text[1:]) for token in tokens(sql) if token.kind == "parameter"), default=0)


def cast_parameters(sql: str, types: dict[int, str]) -> str:
    """The statement with a cast for each parameter whose type the client declared. `types`: by number from 1, as the target names them.

    A following cast to `numeric` without limits is left out where the type has limits: DuckDB would round to three digits.
    """
    found = list(tokens(sql))
    written: list[str] = []
    at = 0
    while at < len(found):
        token, at = found[at], at + 1
        kind = types.get(int(token.text[1:])) if token.kind == "parameter" else None
        written.append(token.text if kind is None else f"CAST({token.text} AS {kind})")
        if kind is not None and kind.startswith("DECIMAL("):
            at += _unlimited_cast(found[at : at + _LONGEST_CAST], is_array=kind.endswith("[]"))
    return "".join(written)


def _unlimited_cast(after: Sequence[Token], *, is_array: bool) -> int:
    """The number of tokens of a cast to `numeric` or `numeric[]` at the beginning of these; 0 if they do not begin with one."""
    parts = [(i, token.text.lower()) for i, token in enumerate(after) if token.kind not in {"space", "comment"}]
    texts = [text for _, text in parts]
    wanted = 5 if is_array else 3
    is_numeric = texts[:2] == [":", ":"] and texts[2:3] in (["numeric"], ["decimal"])
    brackets = texts[3:5] if is_array else []
    if (
        not is_numeric
        or len(parts) < wanted
        or brackets not in ([], ["[", "]"])
        or texts[wanted:][:1] in (["("], ["["])
    ):
        return 0
    return parts[wanted - 1][0] + 1


def cast_of_parameters(sql: str) -> dict[int, str]:
    """The types, in lower case and without modifiers, to which a statement casts its parameters by `$1::type` or `$1::type[]`."""
    found: dict[int, str] = {}
    parts = [token for token in tokens(sql) if token.kind not in {"space", "comment"}]
    for i, parameter in enumerate(parts):
        after = parts[i + 1 : i + 1 + _LONGEST_CAST]
        is_cast = [token.text for token in after[:2]] == [":", ":"] and [token.kind for token in after[2:3]] == ["word"]
        if parameter.kind == "parameter" and is_cast:
            found.setdefault(int(parameter.text[1:]), _type_name([token.text.lower() for token in after[2:]]))
    return found


def _type_name(parts: list[str]) -> str:
    """The type at the beginning of a text: its name, which may have several words, and `[]` if it is an array."""
    name, rest = parts[0], _after_modifiers(parts[1:])
    for words in _MORE_WORDS.get(name, ()):
        if tuple(rest[: len(words)]) == words:
            name, rest = " ".join((name, *words)), _after_modifiers(rest[len(words) :])
            break
    return name + ("[]" if rest[:2] == ["[", "]"] else "")


def _after_modifiers(parts: list[str]) -> list[str]:
    """What follows `(…)`, if the text begins with it."""
    return parts[parts.index(")") + 1 :] if parts[:1] == ["("] and ")" in parts else parts


_OF_TIMES = (("with", "time", "zone"), ("without", "time", "zone"))
_MORE_WORDS = {"double": (("precision",),), "character": (("varying",),), "timestamp": _OF_TIMES, "time": _OF_TIMES}
"""What follows the first word of a type's name."""
_LONGEST_CAST = 20
"""Tokens that a cast has at most, with space: `:: numeric ( 3 8 , 1 0 ) [ ]`, where each digit is one."""


class Action(Enum):
    """What the endpoint does with a statement."""

    QUERY = "query"
    EMPTY = ""
    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SAVEPOINT = "SAVEPOINT"
    RELEASE = "RELEASE"
    ROLLBACK_TO = "ROLLBACK TO"
    SET = "SET"
    SET_LOCAL = "SET LOCAL"
    RESET = "RESET"
    SHOW = "SHOW"
    DISCARD = "DISCARD"
    DEALLOCATE = "DEALLOCATE"
    DECLARE = "DECLARE"
    FETCH = "FETCH"
    CLOSE = "CLOSE"
    UNLISTEN = "UNLISTEN"
    ALTER_ROLE = "ALTER ROLE"


@dataclass(frozen=True, slots=True)
class Command:
    """A statement. `rest`: its text after the keywords of the action; all of it for a query."""

    action: Action
    rest: str
    hints: dict[str, str]
    """Settings for this statement only, from comments of the form `/*+ penstock.freshness = latest */` before it."""


_ACTIONS: tuple[tuple[tuple[str, ...], Action], ...] = (
    (("BEGIN",), Action.BEGIN),
    (("START", "TRANSACTION"), Action.BEGIN),
    (("COMMIT",), Action.COMMIT),
    (("END",), Action.COMMIT),
    (("ROLLBACK", "TO"), Action.ROLLBACK_TO),
    (("ROLLBACK", "TRANSACTION", "TO"), Action.ROLLBACK_TO),
    (("ROLLBACK", "WORK", "TO"), Action.ROLLBACK_TO),
    (("ROLLBACK",), Action.ROLLBACK),
    (("ABORT",), Action.ROLLBACK),
    (("SAVEPOINT",), Action.SAVEPOINT),
    (("RELEASE",), Action.RELEASE),
    (("SET", "LOCAL"), Action.SET_LOCAL),
    (("SET", "SESSION", "CHARACTERISTICS"), Action.SET),
    (("SET", "SESSION", "AUTHORIZATION"), Action.SET),
    (("SET", "SESSION"), Action.SET),
    (("SET",), Action.SET),
    (("RESET",), Action.RESET),
    (("SHOW",), Action.SHOW),
    (("DISCARD",), Action.DISCARD),
    (("DEALLOCATE",), Action.DEALLOCATE),
    (("DECLARE",), Action.DECLARE),
    (("FETCH",), Action.FETCH),
    (("CLOSE",), Action.CLOSE),
    (("UNLISTEN",), Action.UNLISTEN),
    (("ALTER", "ROLE"), Action.ALTER_ROLE),
    (("ALTER", "USER"), Action.ALTER_ROLE),
)
_HINT = re.compile(r"(penstock\.[a-z_]+)\s*=\s*('(?:[^']|'')*'|[^\s,*]+)", re.IGNORECASE)


def command_of(statement: str) -> Command:
    """What a statement asks for."""
    found = list(tokens(statement))
    words = [token.text.upper() for token in found if token.kind not in {"space", "comment"}][:3]
    hints: dict[str, str] = {}
    for token in found:
        if token.kind not in {"space", "comment"}:
            break
        if token.kind == "comment" and token.text.startswith("/*+"):
            hints.update({m[1].lower(): unquoted(m[2]) for m in _HINT.finditer(token.text)})
    for keywords, action in _ACTIONS:
        if tuple(words[: len(keywords)]) == keywords:
            keep = 0 if keywords == ("SET", "SESSION") or keywords[:2] != ("SET", "SESSION") else 2
            return Command(action, _after(found, len(keywords) - keep), hints)
    return Command(Action.QUERY if words else Action.EMPTY, statement, hints)


def _after(found: list[Token], words: int) -> str:
    """The text after this many tokens that are neither space nor comment."""
    for i, token in enumerate(found):
        if words == 0:
            return "".join(rest.text for rest in found[i:] if rest.kind != "comment").strip()
        words -= token.kind not in {"space", "comment"}
    return ""


def unquoted(value: str) -> str:
    """A value of SET without its quotes."""
    value = value.strip()
    for quote in ("'", '"'):
        if len(value) >= 2 and value[0] == value[-1] == quote:
            return value[1:-1].replace(quote * 2, quote)
    return value
