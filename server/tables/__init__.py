"""The tables of subscriptions."""
