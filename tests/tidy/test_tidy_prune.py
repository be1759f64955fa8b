"""What the image build takes out again."""

from __future__ import annotations

from pathlib import Path

from deploy.prune import developer_packages
from tests.tidy.source_tree import ROOT


def test_developer_packages_are_those_of_the_extra() -> None:
    names = developer_packages(ROOT / "pyproject.toml")
    assert {"pytest", "mypy", "ruff"} <= set(names)
    assert not {"fastapi", "pyspark", "psycopg"} & set(names)


def test_a_dependency_is_kept_even_if_developers_name_it(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\ndependencies = ["a>=1", "b[x]>2"]\noptional-dependencies = {dev = ["b", "c>=1"]}\n')
    assert developer_packages(file) == ["c"]
