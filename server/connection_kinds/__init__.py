"""Kinds of connections over REST."""
