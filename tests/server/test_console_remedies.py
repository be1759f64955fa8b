"""The console says buttons where remedies of the engine name the calls that they make."""

from __future__ import annotations

import json
import re

from engine.platform.fault_policy import POLICIES
from tests.fixtures.console import run_module

MODULE = "src/labels/remedies.ts"
READ = "given.map(([remedy, here]) => found.plainRemedy(remedy, here))"
DONE_BY_BUTTON = re.compile(r"POST /|set desired_state to|with PATCH /connections|PUT /connections")


def _plain(*remedies: tuple[str, str]) -> list[tuple[str, list[str]]]:
    """Words and calls of remedies, each read on its page."""
    read = json.loads(run_module(MODULE, READ, [list(remedy) for remedy in remedies]))
    return [(told["words"], told["calls"]) for told in read]


def test_no_remedy_of_the_engine_leaves_a_call_that_a_button_makes() -> None:
    remedies = [policy.remedy for policy in POLICIES.values()]
    told = _plain(*((remedy, "table") for remedy in remedies))
    named = 0
    for remedy, (words, calls) in zip(remedies, told, strict=True):
        assert not DONE_BY_BUTTON.search(words), words
        assert bool(calls) == bool(DONE_BY_BUTTON.search(remedy)), remedy
        if not calls:
            assert words == remedy
        named += len(calls)
    assert named > 20


def test_a_remedy_names_the_page_of_its_button_where_that_is_another() -> None:
    remedy = "POST /subscriptions/{name}/tables/{table_id}/retries then looks. Or look yourself."
    here, elsewhere = _plain((remedy, "table"), (remedy, "subscription"))
    call = "POST /subscriptions/{name}/tables/{table_id}/retries"
    assert here == ("“Try again” then looks. Or look yourself.", [call])
    assert elsewhere == ("“Try again” on the table's page then looks. Or look yourself.", [call])
