"""The history of subscriptions: lag, log, throughput and waits over time."""
