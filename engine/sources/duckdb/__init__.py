"""What captures share whose tables are read by DuckDB: types, structures, reads of rows, and checks."""
