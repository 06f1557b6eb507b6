"""Commands, generators and checks of the bus."""
