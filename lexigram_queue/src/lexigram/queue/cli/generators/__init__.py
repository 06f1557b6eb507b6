"""Code generators of the bus."""
