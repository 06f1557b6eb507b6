"""Embeddings beside the libraries they stand on, and what worker and cache add."""
