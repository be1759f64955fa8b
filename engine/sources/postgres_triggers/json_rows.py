"""Rows that PostgreSQL printed as JSON, turned into canonical text: without Python code for each row, and without the source's work.

Only for tables whose values JSON holds exactly. A row of another form than `row_to_json` prints of the structure is not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.platform.compiled import Array, kernel
from engine.records import landing
from engine.records.encode import UNCHANGED, UPDATE
from engine.records.landing import Changes, CopyLines
from engine.sources.postgres_triggers.objects import PARTIAL

NO, XID, RELATION, OPERATION, OLD, NEW = range(6)
"""Fields of a line: change number, transaction id, table, operation, and both rows as JSON."""
FIELDS = 6
"""How many fields a line has."""
_TEXT, _BOOL, _TIMESTAMP, _TIMESTAMPTZ = range(4)
_FORMS = {"bool": _BOOL, "timestamp": _TIMESTAMP, "timestamptz": _TIMESTAMPTZ}
"""Types whose JSON is not their canonical text; of all others it is, in quotes or not."""
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COMMA, _COLON, _LIST, _LIST_END = (ord(c) for c in '"\\{},:[]')
_T, _U, _N, _SPACE, _PLUS, _MINUS, _DOT, _ZERO, _NINE = (ord(c) for c in "Tun +-.09")
_TRUE, _FALSE = ord("t"), ord("f")
_PARTIAL = ord(PARTIAL)
_BEFORE_CHRIST = -2
"""In place of the number of bytes by which a time has grown: its year is not positive, which PostgreSQL prints in another form."""
_UNESCAPED = np.zeros(256, np.uint8)
"""What follows a backslash in JSON, by its byte; 0: it is no such letter."""
for _letter, _byte in (('"', 34), ("\\", 92), ("/", 47), ("b", 8), ("f", 12), ("n", 10), ("r", 13), ("t", 9)):
    _UNESCAPED[ord(_letter)] = _byte
_KEY_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How `row_to_json` prints the rows of one structure.

    `keys` (uint8), `key_ends` (int64): the text before each value, one after another. `places` (int64): the place of each value among
    `columns` columns that are sent, -1 for one that is not. `forms` (int64): how each value is turned into text.
    """

    keys: Array
    key_ends: Array
    places: Array
    forms: Array
    columns: int

    @staticmethod
    def of(names: Sequence[str], sent: Sequence[str], types: Mapping[str, str]) -> JsonForm:
        """`names`: of all columns of the table, in order; `sent`: those whose values are wanted, with their types by name."""
        keys = [f'{"," if place else "{"}"{_escaped(name)}":'.encode() for place, name in enumerate(names)]
        place_of = {name: place for place, name in enumerate(sent)}
        return JsonForm(
            np.frombuffer(b"".join(keys), np.uint8),
            np.cumsum([len(key) for key in keys], dtype=np.int64),
            np.array([place_of.get(name, -1) for name in names], np.int64),
            np.array([_FORMS.get(types.get(name, ""), _TEXT) for name in names], np.int64),
            len(sent),
        )


def _escaped(name: str) -> str:
    return "".join(_KEY_ESCAPES.get(ord(c), c if c >= " " else f"\\u{ord(c):04x}") for c in name)


@dataclass(frozen=True, slots=True)
class PrintedRows:
    """The lines of one table: their places among all (int64), and change numbers and transaction ids."""

    lines: CopyLines
    chosen: Array
    no: Array
    xid: Array

    def changes(self, form: JsonForm, keys: Sequence[int] = ()) -> Changes | None:
        """Overwrites the JSON. `keys`: places of the columns that identify a row. None: a row has another form, or is an update of changed
        columns that was recorded with another key."""
        lines, chosen = self.lines, self.chosen
        olds, news = (_values(lines, chosen, field, form) for field in (OLD, NEW))
        if olds is None or news is None:
            return None
        operations = lines.letters(OPERATION)[chosen]
        partial = operations == _PARTIAL
        if (olds.sizes == UNCHANGED).any() or (news.sizes[~partial] == UNCHANGED).any():
            return None
        wanted = np.zeros(news.listed.shape, np.bool_)
        wanted[np.ix_(partial, keys)] = True
        if olds.listed.any() or (news.listed != wanted).any():
            return None
        operations[partial] = UPDATE
        places = (olds.starts, olds.sizes), (news.starts, news.sizes)
        return Changes(self.no, self.xid, operations, lines.data, *places, partial)


def printed_rows(lines: CopyLines) -> dict[int, PrintedRows]:
    """The lines by table."""
    numbers = lines.numbers(RELATION + 1)
    order = np.argsort(numbers[RELATION], kind="stable")
    found, begins = np.unique(numbers[RELATION][order], return_index=True)
    parts = np.split(order, begins[1:]) if len(found) else []
    return {
        int(table): PrintedRows(lines, part, numbers[NO][part], numbers[XID][part])
        for table, part in zip(found, parts, strict=True)
    }


class _Values(NamedTuple):
    """Places of values in the lines' data, rows by columns. `listed` (bool): those that were the only element of an array."""

    starts: Array
    sizes: Array
    listed: Array


def _values(lines: CopyLines, chosen: Array, field: int, form: JsonForm) -> _Values | None:
    shape = (len(chosen), form.columns)
    found = _Values(np.zeros(shape, np.int64), np.full(shape, -1, np.int64), np.zeros(shape, np.bool_))
    places = np.ascontiguousarray(lines.starts[chosen, field]), np.ascontiguousarray(lines.sizes[chosen, field])
    texts = form.keys, form.key_ends, form.places, form.forms, _UNESCAPED
    return found if _parse(lines.data, *places, *texts, *found) else None


@kernel
def _parse(
    data: Array,
    begins: Array,
    lengths: Array,
    keys: Array,
    key_ends: Array,
    places: Array,
    forms: Array,
    unescaped: Array,
    starts: Array,
    sizes: Array,
    listed: Array,
) -> bool:
    for row in range(begins.size):
        if lengths[row] < 0:
            continue
        at, end = begins[row], begins[row] + lengths[row]
        key = 0
        for column in range(places.size):
            if at + key_ends[column] - key >= end:
                return False
            while key < key_ends[column]:
                if data[at] != keys[key]:
                    return False
                at += 1
                key += 1
            is_listed = data[at] == _LIST and at + 1 < end and data[at + 1] != _LIST_END
            if is_listed:
                at += 1
            start, size, at = _value(data, at, end, unescaped)
            if at < 0:
                return False
            if is_listed:
                if at >= end or data[at] != _LIST_END:
                    return False
                at += 1
            if size >= 0 and forms[column] != _TEXT:
                size = _converted(data, start, size, forms[column])
                if size < 0:
                    return False
            if places[column] >= 0:
                starts[row, places[column]] = start
                sizes[row, places[column]] = size
                listed[row, places[column]] = is_listed
        if at != end - 1 or data[at] != _CLOSE:
            return False
    return True


@kernel
def _value(data: Array, at: int, end: int, unescaped: Array) -> tuple[int, int, int]:
    """Start and size of the value at `at`, unescaped in place, and the place after it, -1 if it is none. Size -1: null; UNCHANGED: `[]`."""
    if data[at] == _LIST and at + 1 < end and data[at + 1] == _LIST_END:
        return at, UNCHANGED, at + 2
    if data[at] != _QUOTE:
        start = at
        while at < end and data[at] != _COMMA and data[at] != _CLOSE and data[at] != _LIST_END:
            if data[at] in (_OPEN, _QUOTE, _SPACE, _LIST):
                return start, 0, -1
            at += 1
        return start, -1 if data[start] == _N else at - start, at
    start = out = at + 1
    at = start
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            return start, out - start, at + 1
        if byte == _BACKSLASH:
            at += 1
            if at < end and data[at] == _U:
                byte = _control(data, at + 1, end)
                at += 4
            else:
                byte = unescaped[data[at]] if at < end else 0
            if byte == 0:
                return start, 0, -1
        data[out] = byte
        out += 1
        at += 1
    return start, 0, -1


@kernel
def _control(data: Array, at: int, end: int) -> int:
    """The byte of four hexadecimal digits, 0 if they are not those of a control character: others are printed as they are."""
    if at + 4 > end:
        return 0
    value = 0
    for place in range(at, at + 4):
        digit = int(data[place])
        if _ZERO <= digit <= _NINE:
            digit -= _ZERO
        elif 97 <= digit <= 102:
            digit -= 87
        else:
            return 0
        value = value * 16 + digit
    return value if value < 128 else 0


@kernel
def _converted(data: Array, start: int, size: int, form: int) -> int:
    """Turn a value into canonical text in place; returns its size, -1 if it has another form than expected."""
    if form == _BOOL:
        if data[start] not in (_TRUE, _FALSE):
            return -1
        return 1
    if data[start] < _ZERO or data[start] > _NINE:  # infinity
        return size
    middle = start
    while middle < start + size and data[middle] != _T:
        middle += 1
    if middle == start + size:
        return -1
    if form == _TIMESTAMP:
        for at in range(middle + 1, start + size):
            if data[at] != _COLON and data[at] != _DOT and (data[at] < _ZERO or data[at] > _NINE):
                return -1
        data[middle] = _SPACE
        return size
    return _in_utc(data, start, size, middle)


@kernel
def _in_utc(data: Array, start: int, size: int, middle: int) -> int:
    """Turn `2026-01-31T12:00:00.5+02:00` into `2026-01-31 10:00:00.5+00`. The separator is at `middle`."""
    end = start + size
    zone = middle + 9
    while zone < end and (data[zone] == _DOT or _ZERO <= data[zone] <= _NINE):
        zone += 1
    if middle - start < 10 or zone >= end or data[zone] not in (_PLUS, _MINUS):
        return -1
    offset, unit, at = 0, 3600, zone + 1
    while at + 2 <= end and unit > 0:
        offset += unit * _number(data, at, at + 2)
        unit //= 60
        at += 2
        if at < end and data[at] == _COLON:
            at += 1
        elif at < end:
            return -1
    if at != end:
        return -1
    data[middle] = _SPACE
    data[zone] = _PLUS if offset == 0 else data[zone]
    if offset != 0:
        shift = -offset if data[zone] == _PLUS else offset
        grown = _shifted(data, start, middle, zone, shift)
        if grown == _BEFORE_CHRIST:
            return -1
        zone += grown
    data[zone], data[zone + 1], data[zone + 2] = _PLUS, _ZERO, _ZERO
    return zone + 3 - start


@kernel
def _number(data: Array, at: int, end: int) -> int:
    value = 0
    for place in range(at, end):
        value = value * 10 + int(np.int64(data[place]) - _ZERO)
    return value


@kernel
def _put(data: Array, at: int, digits: int, value: int) -> None:
    for place in range(at + digits - 1, at - 1, -1):
        data[place] = _ZERO + value % 10
        value //= 10


@kernel
def _shifted(data: Array, start: int, middle: int, zone: int, shift: int) -> int:
    """Add seconds to a date and a time. Returns by how many bytes the text has grown, since the year may get another digit; _BEFORE_CHRIST
    if it has no such text."""
    days = _days(
        _number(data, start, middle - 6), _number(data, middle - 5, middle - 3), _number(data, middle - 2, middle)
    )
    seconds = _number(data, middle + 1, middle + 3) * 3600 + _number(data, middle + 4, middle + 6) * 60
    seconds += _number(data, middle + 7, middle + 9) + shift
    days += seconds // 86_400
    seconds %= 86_400
    year, month, day = _date(days)
    if year < 1:
        return _BEFORE_CHRIST
    digits = middle - 6 - start
    grown = 0
    if year >= 10**digits:
        grown = 1
    elif digits > 4 and year < 10 ** (digits - 1):
        grown = -1
    if grown > 0:
        for at in range(zone - 1, middle - 1, -1):
            data[at + 1] = data[at]
    elif grown < 0:
        for at in range(middle, zone):
            data[at - 1] = data[at]
    middle += grown
    _put(data, start, digits + grown, year)
    data[middle - 6] = _MINUS
    _put(data, middle - 5, 2, month)
    data[middle - 3] = _MINUS
    _put(data, middle - 2, 2, day)
    _put(data, middle + 1, 2, seconds // 3600)
    _put(data, middle + 4, 2, seconds // 60 % 60)
    _put(data, middle + 7, 2, seconds % 60)
    return grown


@kernel
def _days(year: int, month: int, day: int) -> int:
    """Days since 0000-03-01 of the Gregorian calendar, as it was before its introduction too."""
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1


@kernel
def _date(days: int) -> tuple[int, int, int]:
    """The inverse of `_days`."""
    era, left = days // 146_097, days % 146_097
    year = (left - left // 1_460 + left // 36_524 - left // 146_096) // 365
    left -= 365 * year + year // 4 - year // 100
    month = (5 * left + 2) // 153
    day = left - (153 * month + 2) // 5 + 1
    year += 400 * era
    if month >= 10:
        return year + 1, month - 9, day
    return year, month + 3, day


def warm() -> None:
    """Compile or load every kernel with which recorded rows are read."""
    landing.warm()
    lines = CopyLines.of(b'1\t2\t3\tU\t{"a":1,"t":"2026-01-31T12:00:00+02:00"}\t\\N\n', FIELDS)
    form = JsonForm.of(["a", "t"], ["a", "t"], {"a": "int4", "t": "timestamptz"})
    printed_rows(lines)[3].changes(form)
