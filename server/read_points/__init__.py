"""Read points: states of all tables of a subscription at one position, kept for queries by name."""
