"""Code shared by the PostgreSQL source and the PostgreSQL target: sessions, faults by SQLSTATE, sequences."""
