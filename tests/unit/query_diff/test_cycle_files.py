"""The folder of cycles, when a process was killed between two steps."""

from __future__ import annotations

from pathlib import Path

from engine.sources.query_diff.cycle_files import CycleFiles, CycleFound


def test_a_cycle_that_was_partly_removed_is_confirmed_again(tmp_path: Path) -> None:
    files = CycleFiles(tmp_path / "reader")
    files.make()
    for number in (1, 2, 3):
        files.begin(number).finish(CycleFound(number, number - 1, 0, 0, snapshot=True))
        files.publish(number)
    # Killed after the report was moved, and before the rest was removed.
    (tmp_path / "reader" / "cycles" / "1" / "manifest.json").rename(tmp_path / "reader" / "reports" / "1.json")
    files.confirm(2)
    assert (files.durable, files.published(), files.last) == (2, [3], 3)
    assert [found.number for found in files.reports(9)] == [3, 2, 1]
