"""The frontend/backend protocol of PostgreSQL, version 3 (PostgreSQL's manual, chapter "Frontend/Backend Protocol")."""
