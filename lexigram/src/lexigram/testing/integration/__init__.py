"""Brokers and clients for integration tests."""
