"""The nodes of subscriptions whose source consists of several databases."""
