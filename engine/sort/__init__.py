"""Turns control records into committed transactions in commit order, and these into batches. Pure: no files, no clock, no threads."""
