"""The tables of a subscription: their registry and states, the plan of a batch, their schema history."""
