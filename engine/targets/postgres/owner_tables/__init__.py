"""Tables that exist on the target and belong to its owner: their inspection, compatibility, claim and DDL."""
