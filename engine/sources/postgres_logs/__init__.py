"""Several PostgreSQL databases as one source: their logs are merged into one."""
