"""Retries of parked tables."""
