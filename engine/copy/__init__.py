"""Copies of tables: the order in which chunks are read, rate limits, and the application of batches to unfinished copies."""
