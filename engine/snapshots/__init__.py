"""Snapshots of a copy as files."""
