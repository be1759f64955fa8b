"""The tests: unit, with a real PostgreSQL, with Spark, of the server."""
