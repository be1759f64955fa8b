"""PostgreSQL captured by triggers that record changes in a shadow table: needs neither logical decoding nor a replication role."""
