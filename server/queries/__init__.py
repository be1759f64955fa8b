"""Read-only queries on a target."""
