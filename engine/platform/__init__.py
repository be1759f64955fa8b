"""Facilities for every process of the engine: settings, clock, failpoints, child processes, fault policy."""
