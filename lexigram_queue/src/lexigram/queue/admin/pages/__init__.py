"""Pages of the console: what they show, as data."""
