"""What DuckDB as a source and as a target share."""
