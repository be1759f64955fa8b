"""The PostgreSQL source: reads the log by logical decoding (pgoutput), and tables under exported snapshots."""
