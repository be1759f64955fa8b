"""Copies of tables: chunks, their order and pace, and what catches them up."""
