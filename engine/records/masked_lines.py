"""Masks columns in COPY text, value for value as `selection` masks them in the log."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import Mask, masking
from engine.model.source import TableSplit

_NULL = rb"\N"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_SPECIAL = re.compile(rb"[\\\b\f\n\r\t\v]")
_ESCAPES = {b"\\": rb"\\", **{plain: b"\\" + letter for letter, plain in _LETTERS.items()}}


def mask_lines(masks: Sequence[tuple[int, Mask]], key: str | None) -> Callable[[bytes], bytes]:
    """A function that masks whole lines of COPY text. `masks`: by place of the column in a line.

    Raises ValueError: a hash without a key.
    """
    functions = [(place, masking(mask, key)) for place, mask in masks]

    def masked(lines: bytes) -> bytes:
        out = []
        for line in lines.split(b"\n")[:-1]:
            values = line.split(b"\t")
            for place, function in functions:
                if values[place] != _NULL:
                    values[place] = _written(function(_read(values[place])))
            out.append(b"\t".join(values))
        return b"\n".join([*out, b""])

    return masked


def mask_of(split: TableSplit, key: str | None, subject: str) -> Callable[[bytes], bytes] | None:
    """The function that masks lines of the split; None without masks. Raises EngineFault(TABLE_COLUMNS_UNFIT) as `mask_lines`."""
    if not split.masks:
        return None
    try:
        return mask_lines(split.masks, key)
    except ValueError as error:
        raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, subject, str(error)) from error


def _read(value: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), value) if b"\\" in value else value


def _written(value: bytes | None) -> bytes:
    return _NULL if value is None else _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value)
