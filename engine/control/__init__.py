"""The engine process: its link to the server, one supervisor for each subscription, and the answers to requests."""
