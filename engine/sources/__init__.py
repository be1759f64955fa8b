"""The kinds of source, one folder each. `engine.connectors` opens them."""
