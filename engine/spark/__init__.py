"""Runs tasks over descriptors on Spark. The only package that imports pyspark."""
