"""PostgreSQL as a target."""

from engine.targets.postgres.target import PostgresTarget

__all__ = ["PostgresTarget"]
