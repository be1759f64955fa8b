"""What a source and a target of PostgreSQL share: sessions, and what an SQLSTATE means."""
