"""Freshness goals: how long a copy lagged too much, and what is left of its error budget."""
