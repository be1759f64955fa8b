"""dbt over a copy: models that are read only, and tests of the copy's rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.sql_clients import DbtProject, needs_dbt
from tests.pg.sql_endpoint.conftest import Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

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


@needs_dbt
def test_a_model_and_tests_over_the_copy(endpoint: Endpoint, tmp_path: Path) -> None:
    files = {"models/schema.yml": _SOURCES, "models/totals.sql": _MODEL, "tests/totals_are_positive.sql": _TEST}
    project = DbtProject(tmp_path, endpoint, files)
    project.run("run")
    built = project.run("test")
    assert "PASS=5 " in built, built
    shown = project.run("show", "--inline", "select * from {{ ref('totals') }} where customer = 'customer 3'")
    assert "customer 3" in shown, shown
