"""Runs tasks over descriptors: on Spark, or on threads of this process. The only package that imports pyspark."""
