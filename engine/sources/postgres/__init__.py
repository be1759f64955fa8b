"""What every way of capturing a PostgreSQL database shares: sessions, the catalog, copies, and statements of readers."""
