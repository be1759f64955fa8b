"""Why the target lags, and by how much each cause."""
