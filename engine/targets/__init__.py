"""The kinds of target and their shared parts."""
