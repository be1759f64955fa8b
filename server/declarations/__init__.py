"""What users declare of connections, subscriptions and tables: shapes and rules that those folders share. Reads no database."""
