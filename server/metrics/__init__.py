"""Metrics in Prometheus' text format."""
