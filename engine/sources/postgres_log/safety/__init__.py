"""Watches the source's slot, publications, catalog and partitions, and limits the slot's retained WAL."""
