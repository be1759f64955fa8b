"""How a subscription and its tables are: health, copies under way, the newest fault."""
