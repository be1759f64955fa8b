"""What all ways to capture MariaDB share: sessions, catalog, types, reads of rows under one session's snapshot, and checks."""
