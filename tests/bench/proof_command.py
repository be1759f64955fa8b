"""What the commands of the long proofs have in common: options, and the file with the result."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", choices=["duckdb", "postgres"], default="duckdb", help="what is filled (duckdb)")
    parser.add_argument("--out", type=Path, default=Path("var/proofs"), help="folder of the results (var/proofs)")


def conclude(document: dict[str, Any], summary: str, file: Path) -> int:
    """Write the result to the file, print the summary, and return the exit code."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=2) + "\n")
    sys.stdout.write(f"{summary}\n{file}\n")
    return 0 if document["passed"] else 1
