"""The source's safety: watches its reader, tables, catalog and partitions, and limits the log that it retains for us."""
