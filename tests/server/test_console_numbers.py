"""The console reads the rows of a query without losing a digit."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.console import environment, npm
from tests.tidy.source_tree import ROOT

WEB = ROOT / "web"
MODULE = "src/api/exactNumbers.ts"
# Compiled as it stands: the oldest Node that is supported runs no TypeScript.
RUN = """
const ts = require("typescript"), fs = require("fs"), found = {};
const { outputText } = ts.transpileModule(fs.readFileSync(process.env.MODULE, "utf8"), {
  compilerOptions: { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022 },
});
new Function("exports", outputText)(found);
const given = JSON.parse(fs.readFileSync(0, "utf8"));
const read = given.map(found.parseExactly);
console.log(JSON.stringify({ written: read.map(found.writeExactly), wide: read.map((value) => typeof value === "bigint") }));
"""


def _read(*texts: str) -> tuple[list[str], list[bool]]:
    """How the console writes each JSON text after reading it, and whether it is an integer too wide for a number there."""
    found = npm()
    if not (WEB / "node_modules").is_dir() or found is None:
        pytest.skip("the console's packages are not installed; make web does")
    ran = subprocess.run(
        ["node", "-e", RUN],
        cwd=WEB,
        env=environment(found[1]) | {"MODULE": MODULE},
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(ran.stdout)
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
