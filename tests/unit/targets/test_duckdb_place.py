"""Where the file of a DuckDB target lies is said before it is made."""

from __future__ import annotations

from pathlib import Path

from engine.targets.duckdb.target import DuckDbTarget


def test_a_relative_path_is_said_in_full(tmp_path: Path) -> None:
    relative = DuckDbTarget("mart.duckdb", home=tmp_path).check([])
    found = [(severity, what) for severity, code, what, _ in relative if code == "target_path_relative"]
    assert [severity for severity, _ in found] == ["info"]
    assert str(tmp_path / "mart.duckdb") in found[0][1]
    assert not (tmp_path / "mart.duckdb").exists()
    absolute = DuckDbTarget(tmp_path / "mart.duckdb", home=tmp_path).check([])
    assert "target_path_relative" not in {code for _, code, _, _ in absolute}


def test_a_relative_path_whose_folder_is_missing_is_an_error_too(tmp_path: Path) -> None:
    found = DuckDbTarget("no/mart.duckdb", home=tmp_path).check([])
    assert [severity for severity, *_ in found] == ["error", "info"]
