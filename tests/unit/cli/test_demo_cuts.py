"""The cuts of the demonstration during verifications of a user."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from server.cli.client import Document, ProblemError
from server.cli.demo import show
from server.demo.schema import TABLES


def test_a_cut_follows_a_verification_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [ProblemError(409, {"code": "verification_running"})] * 2
    tables = [{"name": table, "equal": True} for table in range(len(TABLES))]

    def run_verification(*_: Any) -> Document:
        if refused:
            raise refused.pop()
        return {"state": "succeeded", "tables": tables}

    monkeypatch.setattr(show, "run_verification", run_verification)
    monkeypatch.setattr(show, "_AGAIN_S", 0.01)
    stage: Any = SimpleNamespace(api=None, connect=lambda: None, postgres=None)
    demo = show.Show(stage, 1.0, None, lambda _: None)
    demo._cut()
    assert (len(demo.cuts.answers), demo.cuts.unequal) == (1, 0)
    refused.append(ProblemError(500, {"code": "internal"}))
    with pytest.raises(ProblemError):
        demo._cut()
