"""`penstock triggers`: what it asks and shows."""

from __future__ import annotations

from tests.fixtures.stand_in import Run, StandIn


def test_triggers_are_shown_with_their_statements(stand_in: StandIn, run: Run) -> None:
    orders = {"schema": "public", "name": "[orders]", "variant": "json audit", "current": False}
    absent = {"installed": False, "version": None, "current": False, "tables": [], "install_sql": ["CREATE [x]"]}
    absent["remove_sql"] = []
    present = absent | {"installed": True, "version": 2, "tables": [orders], "remove_sql": ["DROP [y]"]}
    statement = {"sql": "LOCK [z]", "lock": "waits [for] writers", "cost": "little"}
    address = "/connections/shop/change-triggers"
    stand_in.replies["GET", address] = (200, present)
    shown = run("triggers", "show", "shop").stdout
    for text in ("outdated or incomplete, layout 2", "public.[orders]", "json audit", "CREATE [x];", "DROP [y];"):
        assert text in shown
    stand_in.replies["POST", f"{address}/plans"] = (200, {"statements": [statement], "grants": ["GRANT [g]"]})
    planned = run("triggers", "plan", "shop", "-t", "public.orders").stdout
    assert stand_in.requests[-1][2] == {"tables": [{"schema": "public", "name": "orders"}]}
    for text in ("waits [for] writers", "little", "LOCK [z];", "GRANT [g];"):
        assert text in planned
    stand_in.replies["POST", f"{address}/plans"] = (200, {"statements": [], "grants": []})
    assert "Nothing has to be done" in run("triggers", "plan", "shop").stdout
    stand_in.replies["PUT", address] = (200, present | {"current": True})
    assert "shop: installed, layout 2" in run("triggers", "install", "shop", "-t", "public.orders").stdout
    assert stand_in.requests[-1][2] == {"tables": [{"schema": "public", "name": "orders"}]}
    stand_in.replies["DELETE", address] = (200, absent)
    assert "not installed" in run("triggers", "remove", "shop").stdout
