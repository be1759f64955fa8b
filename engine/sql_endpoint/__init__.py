"""The SQL endpoint: a process of the engine through which SQL clients read the targets."""
