"""What captures share whose tables are read by a driver that gives Arrow: a process for the driver, types of values, and copies of rows."""
