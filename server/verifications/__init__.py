"""Verifications: comparisons of tables with their source."""
