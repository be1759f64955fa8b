"""A SQLite file that is only queried: cycles compare its tables with what was read of them before."""
