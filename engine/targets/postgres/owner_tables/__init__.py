"""Existing tables on the target that belong to the user: inspection, compatibility, claim and DDL."""
