"""Databases read by a driver of ADBC, which are only queried: cycles compare them with what was read of them before."""
