"""PostgreSQL's text formats of bytea, `hex` and `escape`. Pure."""

from __future__ import annotations

import re

_HEX = re.compile(r"\\x(?:[ \t\n\r]*[0-9A-Fa-f]{2})*+[ \t\n\r]*")
_ESCAPE = re.compile(rb"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*+", re.DOTALL)
_ESCAPED = re.compile(rb"\\(\\|[0-3][0-7]{2})")


def bytea_value(literal: str) -> bytes:
    """The bytes that a text means. Raises ValueError, without the text."""
    if literal.startswith("\\x"):
        if _HEX.fullmatch(literal) is None:
            raise ValueError("not bytea in hexadecimal digits")
        return bytes.fromhex(literal[2:])
    written = literal.encode()
    if _ESCAPE.fullmatch(written) is None:
        raise ValueError("not bytea in the hex or escape format")
    return _ESCAPED.sub(lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]), written)
