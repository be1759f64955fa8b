"""Reloads: tables, or some of their partitions, copied again."""
