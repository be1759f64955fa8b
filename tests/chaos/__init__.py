"""Replication under kills, run by hand or by a schedule; not part of the test run."""
