"""The benchmark suite: workloads on a source of its own, followed by Penstock and by PostgreSQL's own replication."""
