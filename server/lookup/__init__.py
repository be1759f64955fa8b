"""Finds subscriptions and tables by name or id, for reading and for changing."""
