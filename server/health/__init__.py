"""Liveness and readiness of the server process."""
