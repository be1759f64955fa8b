"""Options of drivers as one text: `name=value` pairs with semicolons between them, as in a connection string of ODBC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

_PAIR = re.compile(r"\s*([^=;{}\s][^=;{}]*?)\s*=\s*(?:\{((?:[^}]|\}\})*)\}\s*|([^;{}]*))(?:;|$)")
_SECRET = re.compile(r"pwd|passw|secret|token|private[_.]?key|credential|api[_.]?key", re.IGNORECASE)
_LOADS = re.compile(r"driver|entrypoint|loadext|filedsn|savefile|.*extension.*", re.IGNORECASE)
"""Options that make a driver, or what manages drivers, load other native code, or write a file. Who may change connections chooses among
the drivers that are installed, and may run nothing else on the engine's machine."""
SECRET_OPTIONS = "secret_options"  # noqa: S105 - the name of a secret
"""The secret with options that must not be shown."""
PASSWORD = "password"  # noqa: S105 - the name of a secret
"""The secret that the driver gets as the password."""

PLACE_OF_PASSWORD = "{password}"  # noqa: S105 - a mark for it
"""What an address has in place of the password."""
QUOTE: Literal['"'] = '"'
"""What names are put in by default."""

LONGEST_VALUE = 1 << 20
"""Bytes of the longest text or binary value of ODBC by default (1 MiB): its buffers hold that in each column. Not measured."""


def options_of(text: str) -> dict[str, str]:
    """The options of a text, in their order. A value with a semicolon or a brace is put in braces, with `}}` for `}`.

    Raises ValueError if the text has another form, or an option twice, or one that is not possible.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(text) and text[at:].strip():
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueError("options are written as name=value;name=value, and a value with ; or { in braces")
        name, braced, plain = pair.groups()
        if _LOADS.fullmatch(name):
            raise ValueError(f"the option {name} is not possible: it would load other code, or write a file")
        if name.lower() in {each.lower() for each in found}:
            raise ValueError(f"the option {name} is there twice")
        found[name] = plain.strip() if braced is None else braced.replace("}}", "}")
        at = pair.end()
    return found


def open_options_of(text: str) -> dict[str, str]:
    """The same, of options that are shown. Raises ValueError if one of them looks like a secret."""
    found = options_of(text)
    for name in found:
        if _SECRET.search(name):
            raise ValueError(
                f"{name} is a secret: use the secrets `{PASSWORD}` or `{SECRET_OPTIONS}` of the connection"
            )
    return found


def connection_string(options: Mapping[str, str]) -> str:
    """The options as one text. Values are in braces only where they must be: not every driver knows them."""
    return ";".join(f"{name}={_braced(value)}" for name, value in options.items())


def _braced(value: str) -> str:
    plain = value == value.strip() and not set(value) & set("[]{}(),;?*=!@")
    return value if plain else f"{{{value.replace('}', '}}')}}}"
