"""How fresh the copies of a subscription are, and waits until a position is visible."""
