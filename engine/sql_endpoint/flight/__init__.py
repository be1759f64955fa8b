"""Arrow Flight SQL (Apache Arrow's `FlightSql.proto`), on gRPC by pyarrow.flight."""
