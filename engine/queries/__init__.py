"""Processes that run readers' statements, on targets and sources."""
