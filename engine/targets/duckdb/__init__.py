"""DuckDB as a target: one file, which the engine holds open, applies batches to and answers queries from."""

from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget, open_target

__all__ = ["DuckDbSettings", "DuckDbTarget", "open_target"]
