"""Drivers by name: the registry, and what every driver needs to start."""
