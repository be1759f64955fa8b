"""Clients of the SQL endpoint. A package, so that its engine ends with its last test."""
