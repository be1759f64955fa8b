"""Connections: how to reach databases, with their secrets."""
