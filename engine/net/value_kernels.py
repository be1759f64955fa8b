"""Kernels that parse PostgreSQL's text output to exact values.

Each takes the buffer and the places of n values, and writes n values; NULL becomes zero. Each returns -1, or the index of the
first value that has another format or does not fit the column. Nothing is rounded.
"""

from __future__ import annotations

import numpy as np

from engine.platform.compiled import NULL, Array, copy_bytes, inlined_kernel, kernel

_INT64_MAX = 9223372036854775807
"""Largest int64; as a timestamp, infinity in DuckDB."""
_TENTH = _INT64_MAX // 10
_DAY_US = 86_400_000_000
"""Microseconds of a day."""
_LAST_WHOLE_DAY = _INT64_MAX // _DAY_US
_EPOCH_DAY = 719_163
"""1970-01-01 as a day of the proleptic Gregorian calendar, where 0001-01-01 is day 1 (`date.toordinal`)."""
_MONTH_STARTS = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365], np.int64)
_DATE_INFINITY = 2147483647
"""Infinity as a date, in days: DuckDB's, the largest int32."""
_LOW32, _TEN, _HALF = np.uint64(0xFFFFFFFF), np.uint64(10), np.uint64(32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_MINUS, _DOT, _QUOTE, _ESCAPE, _OPEN, _CLOSE = (ord(c) for c in '-."\\{}')
_INFINITY = np.frombuffer(b"infinity", np.uint8).copy()
_NULL_WORD = np.frombuffer(b"NULL", np.uint8).copy()


@inlined_kernel
def _byte(data: Array, at: int) -> int:
    """One byte as a signed integer: numba turns sums of signed and unsigned 64-bit integers into floats."""
    return int(np.int64(data[at]))


@kernel
def gather(data: Array, off: Array, length: Array, start: Array, out: Array) -> None:
    """Concatenate texts: text i is at `out[start[i]:start[i + 1]]`."""
    for i in range(off.size):
        copy_bytes(data, off[i], length[i], out, start[i])


@kernel
def parse_bools(data: Array, off: Array, length: Array, out: Array) -> int:
    for i in range(off.size):
        out[i] = 0
        if length[i] < 0:
            continue
        letter = data[off[i]]
        if length[i] != 1 or letter not in (ord("t"), ord("f")):
            return i
        out[i] = letter == ord("t")
    return -1


@kernel
def parse_ints(data: Array, off: Array, length: Array, low: int, high: int, out: Array) -> int:
    for i in range(off.size):
        out[i] = 0
        if length[i] < 0:
            continue
        p, stop = off[i], off[i] + length[i]
        negative = p < stop and data[p] == _MINUS
        p += negative
        if p == stop:
            return i
        # Summed as a negative number: the negative range has one value more.
        value = 0
        while p < stop:
            digit = _byte(data, p) - 48
            if digit < 0 or digit > 9 or value < -_TENTH or (value == -_TENTH and digit > 8):
                return i
            value = value * 10 - digit
            p += 1
        if not negative:
            if value < -_INT64_MAX:
                return i
            value = -value
        if value < low or value > high:
            return i
        out[i] = value
    return -1


@inlined_kernel
def _decimal(data: Array, p: int, stop: int, precision: int, scale: int, out: Array) -> bool:
    """Write one decimal as `[low, high]` words of its 128-bit two's complement; False if it does not fit."""
    negative = p < stop and data[p] == _MINUS
    p += negative
    low = high = _ZERO
    digits, fraction, seen = 0, -1, 0
    while p < stop or fraction < scale:
        digit = 0
        if p >= stop:
            if fraction < 0:
                fraction = 0
                continue
        elif data[p] == _DOT and fraction < 0:
            fraction = 0
            p += 1
            continue
        else:
            digit = _byte(data, p) - 48
            seen += 1
        p += 1
        if digit < 0 or digit > 9 or (fraction == scale and digit > 0):
            return False
        if fraction == scale:
            continue
        fraction += fraction >= 0
        digits += digits > 0 or digit > 0
        carry = ((low >> _HALF) * _TEN + (((low & _LOW32) * _TEN) >> _HALF)) >> _HALF
        high = high * _TEN + carry
        low = low * _TEN + np.uint64(digit)
        if low < np.uint64(digit):
            high += _ONE
    if seen == 0 or digits > precision:
        return False
    if negative:
        low = ~low + _ONE
        high = ~high + (_ONE if low == _ZERO else _ZERO)
    out[0] = low
    out[1] = high
    return True


@kernel
def parse_decimals(data: Array, off: Array, length: Array, precision: int, scale: int, out: Array) -> int:
    """`out`: uint64 (n, 2), the low and the high word of each 128-bit value."""
    for i in range(off.size):
        out[i] = 0
        if length[i] >= 0 and not _decimal(data, off[i], off[i] + length[i], precision, scale, out[i]):
            return i
    return -1


@inlined_kernel
def _infinity(data: Array, p: int, stop: int) -> int:
    """1 for `infinity`, -1 for `-infinity`, else 0."""
    sign = 1
    if p < stop and data[p] == _MINUS:
        sign = -1
        p += 1
    if stop - p != _INFINITY.size:
        return 0
    for k in range(_INFINITY.size):
        if data[p + k] != _INFINITY[k]:
            return 0
    return sign


@inlined_kernel
def _number(data: Array, p: int, stop: int, digits: int) -> int:
    """The number with exactly `digits` digits at `p`, -1 if there is none."""
    if p + digits > stop:
        return -1
    value = 0
    for k in range(p, p + digits):
        digit = _byte(data, k) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return int(value)


@inlined_kernel
def _year_digits(data: Array, p: int, stop: int) -> int:
    digits = 0
    while p + digits < stop and 48 <= data[p + digits] <= 57:
        digits += 1
    return digits if 4 <= digits <= 7 else -1


@inlined_kernel
def _before_christ(data: Array, p: int, stop: int) -> bool:
    return stop - p > 3 and data[stop - 3] == ord(" ") and data[stop - 2] == ord("B") and data[stop - 1] == ord("C")


@inlined_kernel
def _days(data: Array, p: int, stop: int, before_christ: bool) -> tuple[int, int]:
    """Days since 1970-01-01 of the date at `p`, and the offset of its end; -1 as offset if there is no date."""
    digits = _year_digits(data, p, stop)
    if digits < 0:
        return 0, -1
    year = _number(data, p, stop, digits)
    p += digits
    month, day = _number(data, p + 1, stop, 2), _number(data, p + 4, stop, 2)
    if month < 1 or month > 12 or day < 1 or year < 1 or data[p] != _MINUS or data[p + 3] != _MINUS:
        return 0, -1
    if before_christ:
        year = 1 - year
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    month_days = _MONTH_STARTS[month + 1] - _MONTH_STARTS[month] + (1 if leap and month == 2 else 0)
    if day > month_days:
        return 0, -1
    past = year - 1
    days = past * 365 + past // 4 - past // 100 + past // 400 + _MONTH_STARTS[month] + day
    if leap and month > 2:
        days += 1
    return int(days - _EPOCH_DAY), p + 6


@kernel
def parse_dates(data: Array, off: Array, length: Array, out: Array) -> int:
    """Days since 1970-01-01. `infinity` is the largest int32, `-infinity` the smallest plus one."""
    for i in range(off.size):
        out[i] = 0
        if length[i] < 0:
            continue
        p, stop = off[i], off[i] + length[i]
        sign = _infinity(data, p, stop)
        if sign != 0:
            out[i] = sign * _DATE_INFINITY
            continue
        before_christ = _before_christ(data, p, stop)
        days, end = _days(data, p, stop, before_christ)
        if end != (stop - 3 if before_christ else stop) or abs(days) >= _DATE_INFINITY:
            return i
        out[i] = days
    return -1


@inlined_kernel
def _time(data: Array, p: int, stop: int) -> tuple[int, int]:
    """Microseconds of the time of day at `p`, and the offset of its end; -1 as offset if there is no time."""
    hour, minute, second = _number(data, p, stop, 2), _number(data, p + 3, stop, 2), _number(data, p + 6, stop, 2)
    if hour < 0 or hour > 24 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, -1
    if data[p + 2] != ord(":") or data[p + 5] != ord(":"):
        return 0, -1
    p += 8
    micros = 0
    if p < stop and data[p] == _DOT:
        p += 1
        unit = 100_000
        while p < stop and 48 <= data[p] <= 57:
            if unit == 0:
                return 0, -1
            micros += (_byte(data, p) - 48) * unit
            unit //= 10
            p += 1
    total = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    if total > _DAY_US:
        return 0, -1
    return int(total), p


@kernel
def parse_times(data: Array, off: Array, length: Array, out: Array) -> int:
    """Microseconds since midnight, up to and including 24:00:00."""
    for i in range(off.size):
        out[i] = 0
        if length[i] >= 0:
            micros, end = _time(data, off[i], off[i] + length[i])
            if end != off[i] + length[i]:
                return i
            out[i] = micros
    return -1


@inlined_kernel
def _timestamp(data: Array, p: int, stop: int, zoned: bool) -> tuple[int, bool]:
    """Microseconds since 1970-01-01, and whether the text is a timestamp that fits."""
    before_christ = _before_christ(data, p, stop)
    if before_christ:
        stop -= 3
    if zoned:
        stop -= 3
        if stop <= p or data[stop] != ord("+") or data[stop + 1] != 48 or data[stop + 2] != 48:
            return 0, False
    days, p = _days(data, p, stop, before_christ)
    if p < 0 or p >= stop or data[p] != ord(" ") or abs(days) > _LAST_WHOLE_DAY:
        return 0, False
    micros, end = _time(data, p + 1, stop)
    if end != stop or (days == _LAST_WHOLE_DAY and micros >= _INT64_MAX - _LAST_WHOLE_DAY * _DAY_US):
        return 0, False
    return days * _DAY_US + micros, True


@kernel
def parse_timestamps(data: Array, off: Array, length: Array, zoned: bool, out: Array) -> int:
    """Microseconds since 1970-01-01. `infinity` is the largest int64, `-infinity` the smallest plus one. `zoned`: a suffix +00 follows."""
    for i in range(off.size):
        out[i] = 0
        if length[i] < 0:
            continue
        p, stop = off[i], off[i] + length[i]
        sign = _infinity(data, p, stop)
        if sign != 0:
            out[i] = sign * _INT64_MAX
            continue
        value, fits = _timestamp(data, p, stop, zoned)
        if not fits:
            return i
        out[i] = value
    return -1


@inlined_kernel
def _nibble(letter: int) -> int:
    if 48 <= letter <= 57:
        return letter - 48
    if 97 <= letter <= 102:
        return letter - 87
    return -1


@kernel
def parse_hex(data: Array, off: Array, length: Array, start: Array, out: Array) -> int:
    r"""Bytes from `\x…`, concatenated: value i has `(length - 2) / 2` bytes at `out[start[i]:]`."""
    for i in range(off.size):
        if length[i] < 0:
            continue
        p, stop, q = off[i], off[i] + length[i], start[i]
        if stop - p < 2 or (stop - p) % 2 != 0 or data[p] != _ESCAPE or data[p + 1] != ord("x"):
            return i
        for k in range(p + 2, stop, 2):
            high, low = _nibble(_byte(data, k)), _nibble(_byte(data, k + 1))
            if high < 0 or low < 0:
                return i
            out[q] = high * 16 + low
            q += 1
    return -1


@inlined_kernel
def _element(data: Array, p: int, stop: int, delimiter: int, out: Array, at: int) -> tuple[int, int]:
    """Copy the array element at `p` to `out[at:]`; returns the offset of its end (-1 = no element) and its length in `out`."""
    n = 0
    quoted = p < stop and data[p] == _QUOTE
    begin = p
    p += quoted
    while p < stop:
        letter = data[p]
        if quoted and letter == _QUOTE:
            return p + 1, n
        if not quoted and letter in (delimiter, _CLOSE):
            if n == 0:
                return -1, 0
            word = p - begin == _NULL_WORD.size
            for k in range(_NULL_WORD.size):
                word = word and data[begin + k] == _NULL_WORD[k]
            return p, (NULL if word else n)
        if not quoted and letter in (_OPEN, _QUOTE):
            return -1, 0
        if letter == _ESCAPE:
            p += 1
            if p >= stop:
                return -1, 0
        out[at + n] = data[p]
        n += 1
        p += 1
    return -1, 0


@kernel
def count_elements(data: Array, off: Array, length: Array, delimiter: int, counts: Array) -> None:
    """Upper bound of each array's number of elements, by its delimiters."""
    for i in range(off.size):
        counts[i] = 0
        if length[i] >= 2:
            counts[i] = 1
            for p in range(off[i], off[i] + length[i]):
                counts[i] += data[p] == delimiter


@kernel
def split_arrays(
    data: Array, off: Array, length: Array, delimiter: int, out: Array, start: Array, e_off: Array, e_len: Array
) -> int:
    """Split one-dimensional arrays: array i has elements `start[i]` to `start[i + 1]`, whose places are in `out`."""
    at = 0
    e = 0
    for i in range(off.size):
        start[i] = e
        if length[i] < 0:
            continue
        p, stop = off[i], off[i] + length[i]
        if length[i] < 2 or data[p] != _OPEN:
            return i
        p += 1
        if data[p] == _CLOSE and p + 1 == stop:
            continue
        while True:
            e_off[e] = at
            p, n = _element(data, p, stop, delimiter, out, at)
            if p < 0 or p >= stop or (data[p] != delimiter and data[p] != _CLOSE):
                return i
            e_len[e] = n
            at += max(n, 0)
            e += 1
            p += 1
            if data[p - 1] == _CLOSE:
                break
        if p != stop:
            return i
    start[off.size] = e
    return -1


@inlined_kernel
def _unescaped(letter: int) -> int:
    """The character for a letter after a backslash in COPY text."""
    if letter == ord("n"):
        return 10
    if letter == ord("t"):
        return 9
    if letter == ord("r"):
        return 13
    if letter == ord("b"):
        return 8
    if letter == ord("f"):
        return 12
    return 11 if letter == ord("v") else letter


@inlined_kernel
def _unescape(data: Array, p: int, stop: int) -> int:
    r"""Undo the escapes of a field of COPY text in place; returns its length, NULL for `\N`."""
    if stop - p == 2 and data[p] == _ESCAPE and data[p + 1] == ord("N"):
        return NULL
    q = p
    begin = p
    while p < stop:
        if data[p] == _ESCAPE and p + 1 < stop:
            p += 1
            data[q] = _unescaped(_byte(data, p))
        else:
            data[q] = data[p]
        p += 1
        q += 1
    return q - begin


@kernel
def split_copy(data: Array, off: Array, length: Array) -> int:
    """Split COPY text into fields, with places by (column, row); escapes are undone in `data` itself.

    Returns -1, or the index of the first row with another number of fields.
    """
    columns, rows = off.shape
    p = 0
    for r in range(rows):
        for c in range(columns):
            begin = p
            escaped = False
            while p < data.size and data[p] != 9 and data[p] != 10:
                escaped = escaped or data[p] == _ESCAPE
                p += 1
            if p >= data.size or (data[p] == 10) != (c == columns - 1):
                return r
            off[c, r] = begin
            length[c, r] = _unescape(data, begin, p) if escaped else p - begin
            p += 1
    return -1 if p == data.size else rows
