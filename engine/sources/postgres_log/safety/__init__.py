"""Watches the source's slot, publications, catalog and partitions, and limits the log that it retains."""
