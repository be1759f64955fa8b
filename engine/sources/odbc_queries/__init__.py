"""Databases read by a driver of ODBC, which are only queried: cycles compare them with what was read of them before."""
