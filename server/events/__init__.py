"""Events: recorded, listed and streamed."""
