"""The replication engine: a PySpark driver that captures, sorts, nets and applies changes."""
