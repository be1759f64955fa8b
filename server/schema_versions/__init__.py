"""The schema history of tables."""
