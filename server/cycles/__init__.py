"""Cycles of subscriptions whose source is only queried."""
