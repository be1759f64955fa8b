"""`penstock bench` where the benchmark's package is not installed."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
from typer.testing import CliRunner

from server.cli import bench_command
from server.cli.exit_codes import ExitCode


@pytest.mark.parametrize("absent", ["bench", "hdrh"])
@pytest.mark.parametrize("arguments", [[], ["run", "tpcb", "--against", "native"]])
def test_bench_says_how_to_install_it(absent: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> ModuleSpec | None:
        return None if name.partition(".")[0] == absent else importlib.util.find_spec(name)

    monkeypatch.setattr(bench_command, "find_spec", found)
    result = CliRunner().invoke(bench_command.load_bench(), arguments)
    assert result.exit_code == ExitCode.USAGE
    assert "pip install -e '.[bench]'" in " ".join(result.output.split())


def test_bench_has_its_commands_where_it_is_installed() -> None:
    result = CliRunner().invoke(bench_command.load_bench(), ["--help"])
    assert result.exit_code == 0
    assert {"run", "report"} <= set(result.output.split())
