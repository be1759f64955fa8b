"""SQLite files captured by triggers that record changes in tables of the file."""
