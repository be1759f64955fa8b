"""Partitions of tables, and when each was loaded."""
