"""Batches that were committed on a target."""
