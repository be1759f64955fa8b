"""The control database: connection, sessions, models, outbox and migration."""
