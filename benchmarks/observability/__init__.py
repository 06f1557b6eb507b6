"""What it costs to be observable while nobody observes, and while somebody does."""
