"""PostgreSQL as a target."""

from engine.apply.postgres.target import PostgresTarget

__all__ = ["PostgresTarget"]
