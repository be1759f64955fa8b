"""What all ways to capture a SQLite file share: connections, catalog, types, reads of rows, and checks."""
