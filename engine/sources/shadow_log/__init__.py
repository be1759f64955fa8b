"""What sources share whose changes triggers record in a shadow log."""
