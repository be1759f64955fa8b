"""Results on disk: one JSON document a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.suite import FORMAT

Document = dict[str, Any]

_UNSAID = ("duckdb", "auto")
"""Target and apply mode that are left out of a result's name."""


def target_of(document: Document) -> str:
    """The kind of target; the default for documents older than this choice."""
    return str(document.get("target", "duckdb"))


def apply_of(document: Document) -> str:
    """The apply mode: the pinned one, or `auto`."""
    return str(document.get("apply", "auto"))


def label(document: Document) -> str:
    """The title of a document among others: workload, target unless DuckDB, and apply mode if pinned."""
    target, apply = target_of(document), apply_of(document)
    into = "" if target == "duckdb" else f" into {target}"
    return f"{document['workload']}{into}{'' if apply == 'auto' else f', {apply}'}"


def write(folder: Path, document: Document) -> Path:
    """Write a document into a folder, which is created if missing; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = "".join(c for c in str(document["started_at"])[:19] if c.isalnum())
    told = [one for one in (target_of(document), apply_of(document)) if one not in _UNSAID]
    file = folder / f"{'-'.join([document['workload'], *told, document['mode'], stamp])}.json"
    file.write_text(json.dumps(document, indent=1) + "\n")
    return file


def read(folder: Path) -> list[Document]:
    """The latest document of each workload, mode, target and apply mode, ordered by name.

    Raises:
        BenchError: there is no document, or a file has another format.
    """
    latest: dict[tuple[str, ...], Document] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            document = json.loads(file.read_text())
            key = (str(document["workload"]), str(document["mode"]), target_of(document), apply_of(document))
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
