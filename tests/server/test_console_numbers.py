"""The console reads the rows of a query without losing a digit."""

from __future__ import annotations

import json

from tests.fixtures.console import run_module

MODULE = "src/api/exactNumbers.ts"
READ = """(() => {
  const read = given.map(found.parseExactly);
  return { written: read.map(found.writeExactly), wide: read.map((value) => typeof value === "bigint") };
})()"""


def _read(*texts: str) -> tuple[list[str], list[bool]]:
    """How the console writes each JSON text after reading it, and whether it is an integer too wide for a number there."""
    told = json.loads(run_module(MODULE, READ, list(texts)))
    return told["written"], told["wide"]


def test_wide_integers_keep_their_digits() -> None:
    texts = [
        "9223372036854775807",
        "-9223372036854775808",
        "9007199254740993",
        "900719925474099",
        "1.2345678901234567",
        "1e21",
    ]
    written, wide = _read(*texts)
    assert written == [*texts[:5], "1e+21"]
    assert wide == [True, True, True, False, False, False]


def test_digits_in_texts_stay_texts_and_nested_values_are_written_as_they_are() -> None:
    texts = [
        r'"9223372036854775807"',
        r'"a \"1234567890123456789\" \\"',
        '[1234567890123456789, null, true, {"n 1234567890123456": [1.5, "ä"]}]',
        "{}",
    ]
    written, _ = _read(*texts)
    assert [json.loads(text) for text in written] == [json.loads(text) for text in texts]
