"""The kinds of target, and what they share."""
