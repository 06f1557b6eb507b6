"""What the AI workers add to the command line."""
