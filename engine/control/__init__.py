"""The engine's process: its link to the server, a supervisor for each subscription, answers to requests."""
