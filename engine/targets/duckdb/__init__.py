"""DuckDB as a target: one file that the engine holds, applies to and answers queries from."""

from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget, open_target

__all__ = ["DuckDbSettings", "DuckDbTarget", "open_target"]
