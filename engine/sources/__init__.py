"""A stage of the engine."""
