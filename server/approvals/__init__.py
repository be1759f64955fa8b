"""Approvals of schema changes."""
