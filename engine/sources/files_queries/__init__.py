"""Folders of CSV and Parquet files as tables, which are only read: cycles compare them with what was read of them before."""
