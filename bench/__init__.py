"""The benchmark suite: workloads on a source of its own, replicated by Penstock and by PostgreSQL."""
