"""Wiring and supervision: the only place that knows every stage."""
