"""PostgreSQL's catalog of a DuckDB copy: answers the catalog queries of PostgreSQL clients, which DuckDB's own emulation does not cover."""
