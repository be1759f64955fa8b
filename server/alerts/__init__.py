"""Alerts: notices by webhook, Slack or e-mail of causes that need an operator, and of recoveries."""
