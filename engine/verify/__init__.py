"""Compares the target's tables with the source's at a cut."""
