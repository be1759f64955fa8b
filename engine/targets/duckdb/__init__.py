"""DuckDB as a target: one file that the engine holds, applies to and answers queries from."""

from engine.apply.duckdb.settings import DuckDbSettings
from engine.apply.duckdb.target import DuckDbTarget, open_target

__all__ = ["DuckDbSettings", "DuckDbTarget", "open_target"]
