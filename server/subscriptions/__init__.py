"""Subscriptions: declared, shown, changed and deleted."""
