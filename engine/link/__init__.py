"""The control channel between server and engine: its messages, and the engine's client."""
