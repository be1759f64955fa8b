"""Vocabulary of the engine: values, states, faults and the protocols between stages. Standard library only."""
