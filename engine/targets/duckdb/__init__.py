"""DuckDB as a target: one file, which the engine holds open, applies batches to and answers queries from."""
