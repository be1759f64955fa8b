"""Shared tables: the tables, of any subscription, whose rows each one shows."""
