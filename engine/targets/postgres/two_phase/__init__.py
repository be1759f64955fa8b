"""Two-phase commit of the parts of a batch, and its recovery."""
