"""The demonstration: an embedded source with a running workload."""
