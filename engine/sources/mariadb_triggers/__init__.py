"""MariaDB captured by triggers that record each change in a shadow log on the source."""
