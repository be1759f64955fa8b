"""Migrations of the control database."""
