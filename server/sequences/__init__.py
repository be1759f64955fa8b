"""Sequences of the target, set before a cut-over."""
