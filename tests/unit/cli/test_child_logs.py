"""What `up` shows of its children's logs, and how their files stay small."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from server.cli import child_logs
from server.cli.child_logs import ChildLog
from server.cli.process_commands import own_command


def _record(level: str, event: str, **fields: object) -> bytes:
    return json.dumps({"event": event, "level": level, "timestamp": "t", **fields}).encode() + b"\n"


def test_only_what_matters_is_shown_once(tmp_path: Path) -> None:
    file, shown = tmp_path / "engine.log", list[tuple[str, str, str]]()
    file.write_bytes(_record("error", "of_an_earlier_run"))
    log = ChildLog("engine", file, lambda *line: shown.append(line))
    with file.open("ab") as child:
        child.write(_record("info", "batch_committed", rows=3))
        child.write(b"not JSON\n[1]\n")
        warning = _record("warning", "table_parked", table="public.orders", code="x")
        child.write(warning + warning[:9])
        child.flush()
        log.step()
        child.write(warning[9:] + _record("error", "run_ended"))
        child.flush()
        log.step()
    assert shown == [
        ("warning", "engine", "table parked table=public.orders code=x"),
        ("error", "engine", "run ended"),
    ]


def test_a_file_that_is_too_large_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_logs, "MOST_BYTES", 100)
    file, shown = tmp_path / "engine.log", list[tuple[str, str, str]]()
    log = ChildLog("engine", file, lambda *line: shown.append(line))
    log.step()
    with file.open("ab") as child:
        child.write(_record("info", "filling", text="x" * 200))
        child.flush()
        log.step()
        assert file.stat().st_size == 0
        child.write(_record("warning", "after"))
        child.flush()
        log.step()
    assert file.read_bytes() == _record("warning", "after")
    assert b"filling" in (tmp_path / "engine.log.1").read_bytes()
    assert shown == [("warning", "engine", "after")]


def test_the_command_is_shown_as_it_can_be_called_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / ".venv/bin/penstock"
    assert own_command(".venv/bin/penstock", None) == ".venv/bin/penstock"
    assert own_command(str(script), "/usr/bin/penstock") == ".venv/bin/penstock"
    assert own_command(str(script), str(script)) == "penstock"
    assert own_command("/opt/a b/penstock", None) == "'/opt/a b/penstock'"
    assert own_command("/x/main.py", None) == f"{sys.executable} -m server.cli.main"
