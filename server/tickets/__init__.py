"""Tickets: markers that measure the way from source to target."""
