"""Code the command line can write for users of the bus."""
