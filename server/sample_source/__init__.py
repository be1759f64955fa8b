"""The sample source: a small PostgreSQL that the server runs for first experiments."""
