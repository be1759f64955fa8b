"""The condition of a subscription and its tables: health, current copies, newest fault."""
