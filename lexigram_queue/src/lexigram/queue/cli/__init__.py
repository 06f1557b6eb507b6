"""What the bus adds to the command line."""
