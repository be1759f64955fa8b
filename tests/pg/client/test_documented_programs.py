"""The programs that README and pages show run, against the real product: each exactly as it is printed."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator

import pytest

from tests.fixtures.service import SUBSCRIPTION, Service
from tests.tidy.documents import page
from tests.tidy.source_tree import ROOT

pytestmark = pytest.mark.pg
_EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(autouse=True)
def environment(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the programs read from the environment; the orders that they write are gone afterwards."""
    cluster = service.database.cluster
    monkeypatch.setenv("PENSTOCK_URL", service.url)
    monkeypatch.setenv("PENSTOCK_TOKEN", service.token)
    monkeypatch.setenv(
        "DATABASE_URL", f"postgresql://{cluster.user}@{cluster.host}:{cluster.port}/{service.database.name}"
    )
    yield
    service.database.execute("DELETE FROM orders WHERE id >= 1000")


@pytest.mark.parametrize("path", ["README.md", "docs/how-to/read-your-own-writes.md"])
def test_the_blocks_of_a_page_run_one_after_another(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [text for language, text in page(path).blocks() if language == "python"]
    assert blocks
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{path}, block {number}", "exec"), names)
    if path == "README.md":
        assert "19.90" in capsys.readouterr().out
    else:
        assert [str(row[0]) for row in names["rows"]] == ["19.90"]  # type: ignore[attr-defined]
    names["client"].close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("psycopg_read_your_writes.py", "[(1001, Decimal('19.90'))] at "),
        ("sqlalchemy_read_your_writes.py", "[(1002, Decimal('24.50'))]"),
        ("airflow_wait.py", "0/"),
    ],
)
def test_an_example_runs(name: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(_EXAMPLES / name), run_name="__main__")
    assert printed in capsys.readouterr().out


def test_the_cells_of_the_notebook_run(service: Service) -> None:
    service.database.execute("INSERT INTO orders VALUES (1004, 3)")
    cells = json.loads((_EXAMPLES / "fresh_rows.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert 1004 in [row[0] for row in names["result"].rows()]  # type: ignore[attr-defined]
    assert names["again"].rows() == [(len(names["result"]),)]  # type: ignore[attr-defined,arg-type]
    names["client"].close()  # type: ignore[attr-defined]


def test_every_example_is_run_and_named_on_the_page() -> None:
    run = {"psycopg_read_your_writes.py", "sqlalchemy_read_your_writes.py", "airflow_wait.py", "fresh_rows.ipynb"}
    assert {path.name for path in _EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb"}} == run
    links = set(page("docs/how-to/read-your-own-writes.md").links())
    assert {f"../examples/{name}" for name in run} <= links
    assert SUBSCRIPTION in page("docs/how-to/read-your-own-writes.md").text
