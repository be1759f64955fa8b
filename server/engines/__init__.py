"""The engines: their registration, claims and leases, the commands to them and their reports."""
