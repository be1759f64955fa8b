"""Which Java is selected, with fakes of `java` that print a version."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.spark import java


def _fake(folder: Path, version: str, *, vector: bool = True) -> Path:
    """A `java` that prints a version, and knows the vector module or not."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    refuse = "" if vector else '[ "$1" = --add-modules=jdk.incubator.vector ] && exit 1\n'
    script.write_text(
        f"#!/bin/sh\n{refuse}echo 'openjdk version \"{version}\" 2025-01-01' >&2\nprintf '%s\\n' \"$@\"\n"
    )
    script.chmod(0o755)
    return folder


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(java, "import_module", absent)


@pytest.mark.usefixtures("no_package")
def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, other = _fake(tmp_path / "home", "21.0.1"), _fake(tmp_path / "other", "17.0.2")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java.find_java(tmp_path, environment) == home


@pytest.mark.usefixtures("no_package")
def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = _fake(tmp_path / "old", "11.0.2"), _fake(tmp_path / "new", "17.0.2")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert java.find_java(tmp_path, environment) == new.resolve()


@pytest.mark.usefixtures("no_package")
def test_without_any_the_fault_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EngineFault) as caught:
        java.find_java(tmp_path, {"JAVA_HOME": str(_fake(tmp_path / "old", "1.8.0")), "PATH": ""})
    assert caught.value.kind is FaultKind.SPARK_FAILED
    assert "JAVA_HOME" in caught.value.detail


@pytest.mark.usefixtures("no_package")
def test_a_small_java_gets_a_wrapper_that_drops_the_flag(tmp_path: Path) -> None:
    small = _fake(tmp_path / "it's small", "25.0.2", vector=False)
    found = java.find_java(tmp_path / "scratch", {"JAVA_HOME": str(small), "PATH": ""})
    assert found == tmp_path / "scratch" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main", "$x"]
    answer = subprocess.run([found / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["-Xmx1g", "-Da=b c", "Main", "$x"]


def test_the_installed_package_is_the_last_resort(tmp_path: Path) -> None:
    found = java.find_java(tmp_path, {"PATH": ""})
    assert (found / "bin" / "java").is_file()
