"""Authentication, roles, tokens, and sealed secrets."""
