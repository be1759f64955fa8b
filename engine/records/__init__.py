"""The record form of every log: pgoutput's text records, protocol 4. What reads and writes their bytes."""
