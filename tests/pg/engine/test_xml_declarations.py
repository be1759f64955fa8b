"""Of an XML declaration arrives what PostgreSQL prints of it, however the row came: docs/reference/types.md says what that is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.model.subscription import ConnectionSpec
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, duckdb_target, table

pytestmark = [pytest.mark.pg, pytest.mark.pg15]

BODY = "<a b='1'>\n ü </a>"
DOCUMENTED = {
    f'<?xml version="1.0"?>{BODY}': BODY,
    f'<?xml version="1.0" encoding="UTF-8"?>{BODY}': BODY,
    f'<?xml version="1.0"?>\n{BODY}': BODY,
    f'<?xml version="1.0"?>\n\n{BODY}': f"\n{BODY}",
    f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>{BODY}': f'<?xml version="1.0" standalone="yes"?>{BODY}',
    f"<?xml version='1.0' standalone='no'?>\n{BODY}": f'<?xml version="1.0" standalone="no"?>\n{BODY}',
    f'<?xml version="1.1"?>{BODY}': f'<?xml version="1.1"?>{BODY}',
    f"<!-- c -->{BODY}": f"<!-- c -->{BODY}",
    "only a <b>piece</b>": "only a <b>piece</b>",
}
"""What is written, and what is printed."""


@pytest.mark.parametrize("kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def test_copy_insert_and_update_bring_what_is_documented(
    pg15: EmbeddedPostgres,
    database_on: Callable[..., Database],
    replicate: Callable[..., Replica],
    tmp_path: Path,
    kind: str,
) -> None:
    shop = database_on(pg15)
    shop.execute("CREATE TABLE pages (id int PRIMARY KEY, way text, n int, x xml)")
    written = list(DOCUMENTED)
    for way in ("copied", "updated"):
        shop.execute(
            "INSERT INTO pages SELECT n + %s, %s, n, CASE %s WHEN 'copied' THEN x::xml END"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS t(x, n)",
            [100 * (way == "updated"), way, way, written],
        )
    mart = database_on(pg15)
    target = duckdb_target(tmp_path)
    if kind == "postgres":
        target = ConnectionSpec("mart", "postgres", mart.settings)
    replica = replicate(shop, [table("pages")], target=target)
    values = "FROM unnest(%s::text[]) WITH ORDINALITY AS t(x, n)"
    shop.execute(f"INSERT INTO pages SELECT n + 200, 'inserted', n, x::xml {values}", [written])
    shop.execute(f"UPDATE pages SET x = t.x::xml {values} WHERE way = 'updated' AND pages.n = t.n", [written])
    replica.catch_up()
    found = replica.query("SELECT way, n, CAST(x AS varchar) FROM pages ORDER BY way, n")
    assert found == [
        (way, n, printed)
        for way in ("copied", "inserted", "updated")
        for n, printed in enumerate(DOCUMENTED.values(), 1)
    ]
    assert shop.execute("SELECT x FROM pages WHERE way = 'copied' ORDER BY n") == [(p,) for p in DOCUMENTED.values()]
    assert shop.execute("SELECT x::text FROM pages WHERE way = 'copied' ORDER BY n") == [(w,) for w in written]
    replica.assert_equal()
