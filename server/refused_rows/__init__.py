"""Rows that a target refused."""
