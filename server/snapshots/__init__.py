"""Snapshots: consistent states of a copy, as files on the engine's machine."""
