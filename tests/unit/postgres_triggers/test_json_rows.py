"""JSON as PostgreSQL prints it becomes canonical text; whatever else is not guessed at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import RelationId
from engine.records.encode import UNCHANGED
from engine.records.landing import Changes, CopyLines, records_of
from engine.sources.postgres_triggers.json_rows import FIELDS, JsonForm, printed_rows

TABLE = 77
Value = str | None


def as_copy(text: str | None) -> str:
    """A field of COPY text."""
    if text is None:
        return "\\N"
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def line_of(new: str | None, old: str | None = None, table: int = TABLE, no: int = 1, op: str = "U") -> bytes:
    return ("\t".join([str(no), "9", str(table), op, as_copy(old), as_copy(new)]) + "\n").encode()


def texts_of(changes: Changes) -> list[list[Value]]:
    """The values after the change, by row."""
    starts, sizes = changes.news
    raw = changes.data.tobytes()
    return [
        [None if size < 0 else raw[start : start + size].decode() for start, size in zip(*row, strict=True)]
        for row in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]


def parsed(row: str, names: Sequence[str], **types: str) -> list[Value] | None:
    lines = CopyLines.of(line_of(row), FIELDS)
    changes = printed_rows(lines)[TABLE].changes(JsonForm.of(names, names, types))
    return None if changes is None else texts_of(changes)[0]


def escaped(text: str) -> str:
    """A string as PostgreSQL writes it into JSON: only control characters, quotes and backslashes are escaped."""
    return json.dumps(text, ensure_ascii=False)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x7f"), max_size=20)


@given(st.lists(st.tuples(TEXTS, st.none() | TEXTS, st.none() | st.integers()), min_size=1, max_size=8), TEXTS)
def test_texts_numbers_and_nulls_arrive(rows: list[tuple[str, Value, int | None]], name: str) -> None:
    names = [f"a{name}", "b", "c"]
    data = b""
    for no, (first, second, number) in enumerate(rows):
        values = [
            escaped(first),
            "null" if second is None else escaped(second),
            "null" if number is None else str(number),
        ]
        printed = "{" + ",".join(f"{escaped(key)}:{value}" for key, value in zip(names, values, strict=True)) + "}"
        data += line_of(printed, printed, TABLE + no % 2, no)
    found: dict[int, list[Value]] = {}
    for printed_table in printed_rows(CopyLines.of(data, FIELDS)).values():
        changes = printed_table.changes(JsonForm.of(names, names, {}))
        assert changes is not None
        found |= dict(zip(changes.no.tolist(), texts_of(changes), strict=True))
    wanted = [[a, b, None if n is None else str(n)] for a, b, n in rows]
    assert [found[no] for no in range(len(rows))] == wanted


@given(
    st.datetimes(datetime.fromisoformat("0001-01-03"), datetime.fromisoformat("9999-12-29")),
    st.integers(-57_599, 57_599),
    st.sampled_from([0, 1, 3, 6]),
)
def test_times_with_a_zone_arrive_in_utc(moment: datetime, offset_s: int, digits: int) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
    fraction = f".{moment.microsecond:06}"[: digits + 1] if digits else ""
    sign, left = "-" if offset_s < 0 else "+", abs(offset_s)
    zone = f"{sign}{left // 3600:02}:{left // 60 % 60:02}" + (f":{left % 60:02}" if left % 60 else "")
    local = moment.replace(tzinfo=timezone(timedelta(seconds=offset_s)))
    printed = f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}{fraction}{zone}"
    found = parsed(f'{{"t":"{printed}"}}', ["t"], t="timestamptz")
    utc = local.astimezone(UTC)
    assert found == [f"{utc.year:04}-{utc:%m-%d %H:%M:%S}{fraction}+00"]


@pytest.mark.parametrize(
    ("kind", "printed", "text"),
    [
        ("bool", "true", "t"),
        ("bool", "false", "f"),
        ("timestamp", '"2026-01-31T12:00:00.25"', "2026-01-31 12:00:00.25"),
        ("timestamp", '"12026-01-31T12:00:00"', "12026-01-31 12:00:00"),
        ("timestamp", '"-infinity"', "-infinity"),
        ("timestamptz", '"infinity"', "infinity"),
        ("timestamptz", '"9999-12-31T23:30:00.5-02:00"', "10000-01-01 01:30:00.5+00"),
        ("timestamptz", '"10000-01-01T00:30:00.5+02:00"', "9999-12-31 22:30:00.5+00"),
        ("timestamptz", '"2024-02-28T23:30:00-00:30"', "2024-02-29 00:00:00+00"),
        ("numeric", '"NaN"', "NaN"),
        ("numeric", "1.500", "1.500"),
        ("text", '"a\\u0001\\u001f\\b\\f\\n\\r\\t\\"\\\\/é"', 'a\x01\x1f\b\f\n\r\t"\\/é'),
    ],
)
def test_values_of_types(kind: str, printed: str, text: str) -> None:
    assert parsed(f'{{"v":{printed}}}', ["v"], v=kind) == [text]


@pytest.mark.parametrize(
    "printed",
    [
        '{"v":1,"w":2}',
        '{"w":1}',
        "{}",
        '{"v":}1',
        '{"v":1',
        '{"v":1} ',
        '{"v":{"a":1}}',
        '{"v":[1]}',
        '{"v":"x}',
        '{"v":"\\u00e9"}',
        '{"v":"\\q"}',
    ],
)
def test_other_forms_are_not_guessed_at(printed: str) -> None:
    assert parsed(printed, ["v"]) is None


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        ("timestamptz", '"0044-03-15T00:00:00+00:00 BC"'),
        ("timestamptz", '"0001-01-01T00:30:00+02:00"'),
        ("timestamptz", '"2026-01-31T12:00:00"'),
        ("timestamptz", '"2026-01-31 12:00:00+00:00"'),
        ("timestamp", '"2026-01-31T12:00:00+02:00"'),
        ("timestamp", '"2026-01-31"'),
        ("bool", '"yes"'),
        ("bool", "1"),
    ],
)
def test_values_of_another_type_are_not_guessed_at(kind: str, printed: str) -> None:
    assert parsed(f'{{"v":{printed}}}', ["v"], v=kind) is None


def test_columns_that_are_not_sent_are_left_out() -> None:
    lines = CopyLines.of(line_of('{"a":1,"b":{"x":[1]},"c":3}'), FIELDS)
    assert printed_rows(lines)[TABLE].changes(JsonForm.of(["a", "b", "c"], ["a", "c"], {})) is None
    lines = CopyLines.of(line_of('{"a":1,"b":"2","c":3}', None), FIELDS)
    changes = printed_rows(lines)[TABLE].changes(JsonForm.of(["a", "b", "c"], ["c", "a"], {}))
    assert changes is not None
    assert texts_of(changes) == [["3", "1"]]
    assert changes.olds[1].tolist() == [[-1, -1]]


def test_unchanged_values_are_marked_in_updates_of_changed_columns_only() -> None:
    form = JsonForm.of(["id", "a", "b"], ["id", "a", "b"], {})
    row = '{"id":[7],"a":[],"b":"[]"}'
    lines = line_of(row, op="P") + line_of('{"id":[8],"a":null,"b":[]}', op="P")
    changes = printed_rows(CopyLines.of(lines, FIELDS))[TABLE].changes(form, [0])
    assert changes is not None
    assert changes.news[1].tolist() == [[1, UNCHANGED, 2], [1, -1, UNCHANGED]]
    records = records_of(changes, RelationId(TABLE), [0], whole=False, announcement=None)
    assert records.data[: records.offsets[1]].tobytes() == b"U\0\0\0\x4dN\0\x03t\0\0\0\x017ut\0\0\0\x02[]"
    other_key, old_row = '{"id":[7],"a":["x"],"b":[]}', '{"id":7,"a":null,"b":null}'
    for wrong in (line_of(row), line_of(row, row, op="P"), line_of(other_key, op="P"), line_of(old_row, op="P")):
        assert printed_rows(CopyLines.of(wrong, FIELDS))[TABLE].changes(form, [0]) is None
    for wrong in ('{"id":[7,"a":1,"b":2}', '{"id":[7],"a":[[]],"b":1}', '{"id":[7]', '{"id":[7'):
        assert printed_rows(CopyLines.of(line_of(wrong, op="P"), FIELDS))[TABLE].changes(form, [0]) is None
