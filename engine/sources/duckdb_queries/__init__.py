"""A DuckDB file that is only queried: cycles read copies of it, and compare its tables with what was read of them before."""
