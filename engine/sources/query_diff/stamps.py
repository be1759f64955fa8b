"""Stamps: values of a column that every insert and update sets to the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stamp:
    """A column, and the text of a value of it."""

    column: str
    value: str
