"""dbt over a copy: models that are read only, and tests of the copy's rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.channel import ADMIN
from tests.fixtures.postgres import Database
from tests.pg.sql_endpoint.conftest import USER, Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

_DBT = Path(sys.prefix) / "dbt" / "bin" / "dbt"
_PROJECT = """
name: shop
version: "1.0"
profile: penstock
models:
  shop:
    +materialized: ephemeral
"""
_PROFILE = """
penstock:
  target: copy
  outputs:
    copy:
      type: postgres
      host: 127.0.0.1
      port: {port}
      user: {user}
      password: "{{{{ env_var('PENSTOCK_TOKEN') }}}}"
      dbname: shop
      schema: public
      threads: 2
"""
_SOURCES = """
sources:
  - name: copy
    schema: public
    tables:
      - name: orders
        columns:
          - name: id
            data_tests: [unique, not_null]
      - name: lines
        columns:
          - name: order_id
            data_tests:
              - relationships: {arguments: {to: "source('copy', 'orders')", field: id}}
models:
  - name: totals
    columns:
      - name: customer
        data_tests: [not_null]
"""
_MODEL = "SELECT customer, sum(total) AS total FROM {{ source('copy', 'orders') }} WHERE id <= 1000 GROUP BY customer"
_TEST = "SELECT * FROM {{ ref('totals') }} WHERE total < 0 OR customer NOT LIKE 'customer %'"


@pytest.mark.skipif(not _DBT.exists(), reason=f"no {_DBT}; .ci/run installs it")
def test_a_model_and_tests_over_the_copy(endpoint: Endpoint, database: Database, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "dbt_project.yml").write_text(_PROJECT)
    (tmp_path / "profiles.yml").write_text(_PROFILE.format(port=endpoint.port, user=USER))
    (tmp_path / "models" / "schema.yml").write_text(_SOURCES)
    (tmp_path / "models" / "totals.sql").write_text(_MODEL)
    (tmp_path / "tests" / "totals_are_positive.sql").write_text(_TEST)
    _dbt(tmp_path, "run")
    built = _dbt(tmp_path, "test")
    assert "PASS=5 " in built, built
    shown = _dbt(tmp_path, "show", "--inline", "select * from {{ ref('totals') }} where customer = 'customer 3'")
    assert "customer 3" in shown, shown


def _dbt(folder: Path, *arguments: str) -> str:
    command = [
        str(_DBT),
        "--no-send-anonymous-usage-stats",
        *arguments,
        "--project-dir",
        str(folder),
        "--profiles-dir",
        str(folder),
    ]
    environment = {**os.environ, "PENSTOCK_TOKEN": ADMIN, "PYTHONPATH": ""}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    return said
