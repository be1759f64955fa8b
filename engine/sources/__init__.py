"""The kinds of source."""
