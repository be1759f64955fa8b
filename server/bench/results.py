"""Results on disk: one JSON document a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from server.bench.errors import BenchError
from server.bench.suite import FORMAT

Document = dict[str, Any]


def label(document: Document) -> str:
    """What a document is called beside others: its workload, and its target where that is not DuckDB."""
    target = document.get("target", "duckdb")
    return str(document["workload"]) if target == "duckdb" else f"{document['workload']} into {target}"


def write(folder: Path, document: Document) -> Path:
    """Write a document into a folder, which is made; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = "".join(c for c in str(document["started_at"])[:19] if c.isalnum())
    target = "" if document.get("target", "duckdb") == "duckdb" else f"-{document['target']}"
    file = folder / f"{document['workload']}{target}-{document['mode']}-{stamp}.json"
    file.write_text(json.dumps(document, indent=1) + "\n")
    return file


def read(folder: Path) -> list[Document]:
    """The latest document of each workload, mode and target, in the order of the names.

    Raises:
        BenchError: there is none, or a file is something else.
    """
    latest: dict[tuple[str, str, str], Document] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            document = json.loads(file.read_text())
            key = (str(document["workload"]), str(document["mode"]), str(document.get("target", "duckdb")))
            right = document["format"] == FORMAT
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{file} is not a result of this suite") from error
        if not right:
            raise BenchError(f"{file} was written by another version of the suite")
        if key not in latest or latest[key]["started_at"] <= document["started_at"]:
            latest[key] = document
    if not latest:
        raise BenchError(f"there are no results in {folder}; make some with 'penstock bench run WORKLOAD'")
    return [latest[key] for key in sorted(latest)]
