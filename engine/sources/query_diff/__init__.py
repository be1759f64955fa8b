"""Capture by queries: cycles compare a database's tables with what was read of them before. What does not depend on the database."""
