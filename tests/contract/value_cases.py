"""Source types with values: the edges that are known to hurt, and a strategy for the rest. Values are PostgreSQL literals' text."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy', 'ünï,"quoted"');
CREATE TYPE pair AS (n int, label text);
CREATE TYPE span AS RANGE (subtype = float8);
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE DOMAIN small_positive AS positive CHECK (value < 100);
CREATE DOMAIN price AS numeric(12, 4);
CREATE DOMAIN tags AS text[];
CREATE DOMAIN label AS varchar(8) NOT NULL DEFAULT 'x';
"""


@dataclass(frozen=True)
class Case:
    """A column type, edge values, and a strategy of further ones."""

    type: str
    edges: tuple[str | None, ...]
    values: Texts | None = None
    map_as: str | None = None
    name: str = field(default="")

    @property
    def id(self) -> str:
        return self.name or (self.type + (" as text" if self.map_as else ""))


def integers(bits: int) -> Texts:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


def decimals(precision: int, scale: int) -> Texts:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: _scaled(n, scale))


def _scaled(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else digits
    return f"-{text}" if number < 0 else text


def floats(width: int) -> Texts:
    return st.floats(width=width).map(_float_text)  # type: ignore[call-overload,no-any-return]


def _float_text(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return repr(number)


any_text: Texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
# Full of what COPY, array literals and the log treat specially.
nasty_text: Texts = st.text(st.sampled_from("\\\t\n\r\b\f\v{},;\"'()NULnul xX01é€𝄞"), max_size=12)


def far_dates() -> Texts:
    def render(year: int, day: date) -> str:
        return f"{abs(year):04}-{day.month:02}-{min(day.day, 28):02}" + (" BC" if year < 0 else "")

    years = st.one_of(st.integers(-4713, -1), st.integers(1, 9999), st.integers(10_000, 290_000))
    return st.builds(render, years, st.dates())


def clock_times() -> Texts:
    def render(micros: int) -> str:
        seconds, fraction = divmod(micros, 1_000_000)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"

    return st.integers(0, 86_400_000_000 - 1).map(render)


def moments(zone: str = "") -> Texts:
    def render(day: str, clock: str) -> str:
        plain, _, era = day.partition(" ")
        return f"{plain} {clock}{zone}" + (f" {era}" if era else "")

    return st.builds(render, far_dates(), clock_times())


def arrays(element: Texts, delimiter: str = ",") -> Texts:
    def quote(text: str | None) -> str:
        if text is None:
            return "NULL"
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    many = st.lists(st.none() | element, max_size=6)
    return many.map(lambda values: "{" + delimiter.join(quote(value) for value in values) + "}")


def documents() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | any_text
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3), max_leaves=6
    )


json_text: Texts = documents().map(lambda value: json.dumps(value, ensure_ascii=False))
intervals: Texts = st.builds(
    lambda months, days, micros: f"{months} mons {days} days {micros} us",
    st.integers(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
    st.integers(-(10**15), 10**15),
)
addresses: Texts = st.ip_addresses().map(str)
bits: Texts = st.text("01", max_size=70)
int_ranges: Texts = st.builds(
    lambda low, size, left, right: f"{left}{low},{low + size}{right}",
    st.integers(-(10**6), 10**6),
    st.integers(0, 100),
    st.sampled_from("[("),
    st.sampled_from("])"),
)

INTEGERS = (
    Case("int2", ("-32768", "32767", "0"), integers(16)),
    Case("int4", ("-2147483648", "2147483647"), integers(32)),
    Case("int8", ("-9223372036854775808", "9223372036854775807"), integers(64)),
    Case("oid", ("0", "4294967295"), st.integers(0, 2**32 - 1).map(str)),
    Case("positive", ("1", "2147483647"), st.integers(1, 2**31 - 1).map(str)),
    Case("small_positive", ("1", "99")),
)
NUMERICS = (
    Case("numeric", ("NaN", "Infinity", "-Infinity", "0.00", "1e-16383", "9" * 200, "-0.000"), decimals(60, 20)),
    Case("numeric(10,2)", ("-99999999.99", "99999999.99", "0.00", "-0.01", "0.5"), decimals(10, 2)),
    Case("numeric(38,0)", ("9" * 38, "-" + "9" * 38), decimals(38, 0)),
    Case("numeric(38,38)", ("0." + "9" * 38, "-0." + "0" * 37 + "1"), decimals(38, 38)),
    Case("numeric(5,5)", ("0.99999", "-0.00001")),
    Case("numeric(1,0)", ("9", "-9", "0")),
    Case("numeric(39,2)", ("NaN", "9" * 37 + ".99"), decimals(39, 2)),
    Case("numeric(5,-2)", ("1234500", "-100", "NaN")),
    Case("numeric(3,5)", ("0.00999", "-0.00001")),
    Case("price", ("12345678.1234", "-0.0001"), decimals(12, 4)),
    Case("float4", ("NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "16777217", "0.1"), floats(32)),
    Case("float8", ("NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1"), floats(64)),
    Case("money", ("-92233720368547758.08", "92233720368547758.07", "0"), decimals(15, 2)),
)
TEXTS = (
    Case("bool", ("t", "f"), st.sampled_from(["t", "f"])),
    Case("text", ("", "\\N", "\\", "NULL", "null", "\t\n\r\\.", "\\.", "é" * 3000), any_text | nasty_text),
    Case("varchar", ("", "x" * 5000), nasty_text),
    Case("varchar(12)", ("", " ", "twelve chars"), nasty_text),
    Case("char(12)", ("", "a", "twelve chars", " lead"), nasty_text),
    Case("label", ("x", "\t")),
    Case('"char"', ("a", "", "\\377", "\\")),
    Case("name", ("", "Mixed Case")),
    Case(
        "bytea",
        ("", "\\x00", "\\x5c4e0a09ff", "\\x" + "00ff" * 5000),
        st.binary(max_size=60).map(lambda b: "\\x" + b.hex()),
    ),
    Case("uuid", ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"), st.uuids().map(str)),
    Case("json", ('{"a" : 1, "a" : 2}', " null ", '"\\u0000"', "1e400", "[]"), json_text),
    Case("jsonb", ('{"b": 1.10, "a": [null, {}]}', "null", "1e400"), json_text),
    Case("mood", ("sad", "very happy", 'ünï,"quoted"')),
)
TIMES = (
    Case(
        "date",
        (
            "infinity",
            "-infinity",
            "4713-11-24 BC",
            "0001-01-01 BC",
            "0001-01-01",
            "1582-10-10",
            "9999-12-31",
            "10000-01-01",
            "5874897-12-31",
            "2000-02-29",
        ),
        far_dates(),
    ),
    Case(
        "timestamp",
        (
            "infinity",
            "-infinity",
            "4713-11-24 00:00:00 BC",
            "0001-12-31 23:59:59.999999 BC",
            "10000-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "294246-12-31 23:59:59.999999",
            "2000-01-01 00:00:00.1",
        ),
        moments(),
    ),
    Case("timestamp(3)", ("2020-01-01 00:00:00.1234567", "infinity"), moments()),
    Case(
        "timestamptz",
        (
            "infinity",
            "-infinity",
            "4713-11-24 00:00:00+00 BC",
            "2020-03-29 01:30:00 Europe/Berlin",
            "294246-12-31 23:59:59+00",
            "0001-01-01 00:00:00+00",
            "0001-01-01 00:00:00+14",
            "1883-11-18 12:00:00 America/New_York",
        ),
        moments("+00") | moments("-11:30"),
    ),
    Case("time", ("00:00:00", "24:00:00", "23:59:59.999999", "12:00:00.5"), clock_times()),
    Case("time(0)", ("24:00:00", "23:59:59.4"), clock_times()),
    Case(
        "timetz", ("24:00:00-1559", "00:00:00+15:59:59", "12:34:56.789+02"), clock_times().map(lambda t: t + "+05:30")
    ),
    Case("interval", ("-178000000 years", "1 mon -1 day 00:00:01.5", "0", "-00:00:00.000001"), intervals),
    Case("interval day to second(3)", ("1 day 02:03:04.5678",)),
)
ARRAYS = (
    Case("int4[]", ("{}", "{NULL}", "{1,NULL,-3}", "[1:2]={1,2}"), arrays(integers(32))),
    Case("bool[]", ("{t,f,NULL}",)),
    Case("text[]", ('{"",NULL,"NULL",null,"a,b","{x}","\\\\","\\""}', "{}", '{" "}'), arrays(any_text | nasty_text)),
    Case("varchar(3)[]", ("{abc,NULL}",)),
    Case("numeric(10,2)[]", ("{1.50,NULL,-99999999.99}",), arrays(decimals(10, 2))),
    Case("numeric[]", ("{NaN,1e50,Infinity,NULL}",), arrays(decimals(50, 10))),
    Case("float4[]", ("{NaN,-0,1e-45}",), arrays(floats(32))),
    Case("float8[]", ("{NaN,-Infinity,-0,5e-324}",), arrays(floats(64))),
    Case("bytea[]", ('{"\\\\x00ff",NULL,"\\\\x"}',), arrays(st.binary(max_size=9).map(lambda b: "\\x" + b.hex()))),
    Case("date[]", ("{infinity,4713-11-24 BC,NULL}",), arrays(far_dates())),
    Case("timestamp[]", ('{"0001-01-01 00:00:00 BC",-infinity}',), arrays(moments())),
    Case("timestamptz[]", ('{"2020-01-01 00:00:00+05",infinity}',), arrays(moments("+00"))),
    Case("time[]", ("{24:00:00,NULL}",), arrays(clock_times())),
    Case("uuid[]", ("{00000000-0000-0000-0000-000000000000,NULL}",), arrays(st.uuids().map(str))),
    Case("mood[]", ('{"very happy",NULL}',)),
    Case("tags", ("{a,NULL}", "{}"), arrays(nasty_text)),
    Case("positive[]", ("{1,NULL}",)),
    Case("pair[]", ('{"(1,\\"a b\\")",NULL}',)),
    Case("jsonb[]", ('{"{\\"a\\": [1]}",null}',)),
    Case("box[]", ("{(1,2),(0,1);(3,4),(0,0)}", "{}")),
    Case("int4range[]", ('{"[1,5)",empty}',)),
)
OTHERS = (
    Case("inet", ("192.168.0.1", "10.0.0.0/8", "::1", "fe80::1/64", "::ffff:1.2.3.4"), addresses),
    Case("cidr", ("10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0")),
    Case("macaddr", ("08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff")),
    Case("macaddr8", ("08:00:2b:01:02:03:04:05",)),
    Case("bit(8)", ("00000000", "10101010")),
    Case("bit varying", ("", "1", "0" * 100), bits),
    Case("int4range", ("empty", "(,)", "[1,5)", "[-3,]"), int_ranges),
    Case("numrange", ("(1.50,2.5]", "[,NaN]")),
    Case("tstzrange", ('["2020-01-01 00:00:00+05",infinity)', "empty")),
    Case("span", ("[1.5,2)",)),
    Case("int4multirange", ("{}", "{[1,3),[7,9)}")),
    Case("pair", ("(,)", '(1,"a ""b"", c")', "(1,)", '(,"")')),
    Case("tsvector", ("", "'a':1A 'b c':2,3B", "'it''s'")),
    Case("tsquery", ("'fat' & !( 'rat' | 'cat':AB )",)),
    Case("point", ("(1.5,-0)", "(NaN,Infinity)")),
    Case("polygon", ("((0,0),(1,1),(1,0))",)),
    Case("pg_lsn", ("0/0", "FFFFFFFF/FFFFFFFF")),
    Case("xid8", ("18446744073709551615",)),
    Case("int2vector", ("1 2 3", "")),
    Case("oidvector", ("1 2 3",)),
    Case("jsonpath", ('$."a"[*]?(@ > 1)',)),
    Case("regtype", ("integer", "timestamp with time zone")),
)
MAPPED = (
    Case("numeric(10,2)", ("NaN", "1.50"), map_as="text"),
    Case("int4[]", ("{{1,2},{3,4}}", "[0:1]={1,2}", "{}"), map_as="text"),
    Case("timestamptz", ("294276-12-31 23:59:59+00", "infinity"), map_as="text"),
    Case("bytea", ("\\x00ff",), map_as="text"),
    Case("bool", ("t",), map_as="text"),
    Case("float8", ("NaN", "0.1"), map_as="text"),
)
CASES = (*INTEGERS, *NUMERICS, *TEXTS, *TIMES, *ARRAYS, *OTHERS, *MAPPED)

EXTENSIONS = """
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
CREATE EXTENSION isn;
"""
EXTENSION_CASES = (
    Case("xml", ("<a/>", '<a b="1">x &amp; y<!-- c --></a>', "two<b/>nodes")),
    Case("xml[]", ('{"<a b=\\"1\\"/>",NULL}',)),
    Case("hstore", ("", '"a"=>"1", "b c"=>NULL', '"\\"q\\""=>"\\\\"'), name="hstore"),
    Case("citext", ("Mixed", "", "\\N"), nasty_text),
    Case("citext[]", ('{Mixed,NULL,"a,b"}',), arrays(nasty_text)),
    Case("ltree", ("", "Top.Science.Astronomy")),
    Case("isbn13", ("978-0-393-04002-9",)),
)
"""Types that only the system's PostgreSQL has, most of them unknown to the engine."""

OUT_OF_DOMAIN = (
    ("numeric(10,2)", "NaN"),
    ("price", "NaN"),
    ("numeric(10,2)[]", "{1.00,NaN}"),
    ("int4[]", "{{1,2},{3,4}}"),
    ("int4[]", "{{1}}"),
    ("int4[]", "[0:1]={1,2}"),
    ("int4[]", "[2:2]={NULL}"),
    ("text[]", "{{a},{b}}"),
    ("tags", "{{a},{b}}"),
    ("timestamp", "294276-12-31 23:59:59.999999"),
    ("timestamptz", "294276-12-31 23:59:59+00"),
    ("timestamp[]", "{294276-12-31 00:00:00}"),
)
