"""Shared tables: which tables of which subscriptions one shows."""
