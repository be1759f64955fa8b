"""Control records become committed transactions in one order, and those become batches. Pure: no files, no clock, no threads."""
