"""The SQL endpoint: a process beside the engine through which SQL clients read the targets."""
